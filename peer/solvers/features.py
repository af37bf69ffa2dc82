"""Features of the own examples: pulled to prototypes while training, and measured after it."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.models.split import Mode
from peer.options.solvers import PrototypeOptions
from peer.prototypes import Prototypes
from peer.solvers.base import Batch, Progress, Task
from peer.solvers.descent import Descent, Slope, descend, gradient, leaves
from protocol.params import Params
from protocol.round import Start, Trained

__all__ = ["descend_towards", "measured", "towards"]


def towards(targets: Prototypes, pull: float) -> Slope:
    """The gradient of cross-entropy plus `pull` times the mean squared distance to the prototype.

    The mean is over the batch and the width; examples of a class without a prototype add nothing
    to it. The loss that is told is the cross-entropy.
    """
    has_one = targets.counts > 0  # (classes,)

    def at(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        here = leaves(params)
        seen = task.look(here, buffers, batch)
        loss = F.cross_entropy(seen.logits, batch.targets)
        gaps = seen.features - targets.means[batch.targets].to(seen.features.dtype)
        distance = (gaps * has_one[batch.targets].unsqueeze(1)).square().mean()
        return loss.detach(), gradient(loss + pull * distance, here), seen.buffers

    return at


def descend_towards(
    options: PrototypeOptions, start: Start, task: Task, seed: int, progress: Progress
) -> Trained:
    """Train with features pulled to what the mixer says; to nothing where it has said nothing."""
    weight = start.params[task.model.head.weight]
    targets = Prototypes.read(start.extras) if start.extras else Prototypes.none(weight)
    way = Descent.of(options.descent, towards(targets, options.pull))
    return descend(start, task, way, seed, progress)


@torch.no_grad()
def measured(task: Task, trained: Trained) -> Prototypes:
    """The mean features of each class under a model, in evaluation mode: one pass over the data."""
    weight = trained.params[task.model.head.weight]  # (classes, width)
    sums = torch.zeros_like(weight, dtype=torch.float64)
    squares = sums.new_zeros(len(weight))
    counts = squares.new_zeros(len(weight))
    for batch in task.batches(0):
        seen = task.look(trained.params, trained.buffers, batch, Mode.EVALUATE)
        features = seen.features.double()
        members = F.one_hot(batch.targets, len(weight)).double()  # (batch, classes)
        sums += members.T @ features
        squares += members.T @ features.square().sum(dim=1)
        counts += members.sum(dim=0)
    none, each = Prototypes.none(weight), counts.clamp(min=1.0)
    return Prototypes(
        (sums / each.unsqueeze(1)).to(none.means.dtype),
        counts.to(none.counts.dtype),
        (squares / each).to(none.squares.dtype),
    )

"""FedAlign: the last stage is to transmit as much when it is thin as when it is whole.

Mendieta et al., 2022, arXiv 2111.14213, Algorithm 1. The input of the last stage also goes through
that stage at a smaller width (peer/solvers/thin.py). What a stage transmits from `before` to
`after` is `T = before after^T / pixels` for each example, and its strongest singular value tells
how far it can stretch. With s that of the thin stage and t that of the whole one, held fixed,

    gap = MSE(s, t)
    gradient = grad CE + mu * (CE / gap) * grad gap, the factor held fixed

is clipped and followed. `mu = 0` is SGD with clipping.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.models.split import SplitModel
from peer.options.solvers import FedAlignOptions
from peer.solvers.base import Batch, Progress, Task
from peer.solvers.descent import Descent, Slope, descend, gradient, leaves, slope
from peer.solvers.slopes import clipped
from peer.solvers.thin import ThinStage
from protocol.params import NO_STATE, Params, State, add
from protocol.round import Start, Trained

__all__ = ["FedAlign", "strongest"]

_POWERS = 10  # iterations, as in the authors' code
_TINY = 1e-12  # a stage that transmits nothing, and a gap that has closed


@dataclass(frozen=True, slots=True)
class FedAlign:
    options: FedAlignOptions = field(default_factory=FedAlignOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        """Check that the model has a last stage that runs at the smaller width.

        Raises:
            ModelError: it has none, or it does not.
        """
        ThinStage.of(model, self.options.width).check(model)
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        options = self.options
        stage = ThinStage.of(task.model, options.width)
        follow = _aligned(stage, options.mu) if options.mu else slope
        way = Descent.of(options.descent, clipped(options.clip, follow))
        return descend(start, task, way, seed, progress), state


def _aligned(stage: ThinStage, mu: float) -> Slope:
    def at(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        here = leaves(params)
        seen = task.look(here, buffers, batch, watch=(stage.first, stage.last))
        loss = F.cross_entropy(seen.logits, batch.targets)
        grad = gradient(loss, here)
        dtype = next(iter(params.values())).dtype
        before = seen.seen[stage.first][0].detach().to(dtype)  # bfloat16 under autocast
        after = seen.seen[stage.last][1].detach().to(dtype)
        thin = stage.slice(before)
        gap = F.mse_loss(strongest(thin, stage.run(here, buffers, thin)), strongest(before, after))
        factor = mu * loss.detach() / gap.detach().clamp(min=_TINY)
        return loss.detach(), add(grad, gradient(factor * gap, here)), seen.buffers

    return at


def strongest(before: Tensor, after: Tensor) -> Tensor:
    """Largest singular value of what a stage transmits, by power iteration: (batch,).

    Args:
        before: the input, (batch, channels, height, width); pooled to the size of `after`.
        after: the output, (batch, channels', height', width').
    """
    wide = torch.promote_types(before.dtype, torch.float32)
    before, after = before.to(wide), after.to(wide)
    _, _, high, broad = after.shape
    pooled = F.adaptive_avg_pool2d(before, (high, broad))  # unchanged where sizes are equal
    carried = pooled.flatten(2) @ after.flatten(2).mT / (high * broad)  # (batch, C, C')
    vector = torch.ones_like(carried[:, :, :1])
    size = vector
    for _ in range(_POWERS):
        image = carried @ (carried.mT @ vector)
        size = torch.linalg.vector_norm(image, dim=1, keepdim=True)
        vector = image / size.clamp(min=_TINY)
    return size.flatten().clamp(min=_TINY).sqrt()

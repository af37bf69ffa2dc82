"""FedRoD: a generic classifier that is fair to all classes, and a personal one on top of it.

Chen and Chao, 2022, arXiv 2107.00778. On every batch, with n_c the own examples of class c,

    body and generic classifier follow   CE(generic(z) + log n)      (balanced softmax)
    the personal classifier follows      CE(stop(generic(z)) + personal(stop(z)))

and the personal prediction is generic(z) + personal(z). Both classifiers are linear in z, so that
sum is one classifier with the sum of their weights: what is served is a model like any other, and
the personal classifier lies in this solver's state, where nothing can send it. It begins at zero:
the personal model begins as the generic one. The paper's variant with a hyper-network is not here.
"""

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.mixers.base import Head
from peer.models.split import SplitModel
from peer.options.solvers import DescentOptions
from peer.solvers.base import Batch, Progress, Task
from peer.solvers.descent import Descent, Slope, descend, gradient, leaves
from protocol.params import NO_STATE, Params, State, add, zeros_like
from protocol.round import Start, Trained

__all__ = ["FedRod"]

_PERSONAL = "personal"  # of the state
_OWN = "personal/"  # before the names of the personal classifier while it trains; no path has a /
_ABSENT = 1e-8  # examples that a class without any counts as


@dataclass(frozen=True, slots=True)
class FedRod:
    """The loss that is told is that of the personal prediction."""

    options: DescentOptions = field(default_factory=DescentOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        head = task.model.head
        generic = {name: start.params[name] for name in head.names}
        personal = state.get(_PERSONAL, zeros_like(generic))
        both = {**start.params, **{_OWN + name: t for name, t in personal.items()}}
        way = Descent.of(self.options, _both(task, generic[head.weight]))
        trained = descend(Start(both, start.buffers), task, way, seed, progress)
        params = {name: trained.params[name] for name in start.params}
        personal = {name: trained.params[_OWN + name] for name in head.names}
        served = {**params, **add({name: params[name] for name in head.names}, personal)}
        return replace(trained, params=params, personal=served), {_PERSONAL: personal}


def _both(task: Task, like: Tensor) -> Slope:
    """The gradient of both losses at once: neither depends on what the other one moves.

    Args:
        task: whose classes are counted, once for all batches.
        like: of the device on which batches lie.
    """
    counts = torch.tensor(task.class_counts, dtype=torch.float64, device=like.device)
    prior = counts.clamp(min=_ABSENT).log()

    def at(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        here = leaves(params)
        seen = task.look({n: t for n, t in here.items() if not n.startswith(_OWN)}, buffers, batch)
        balanced = F.cross_entropy(seen.logits + prior.to(seen.logits.dtype), batch.targets)
        extra = _scores(task.model.head, here, seen.features.detach())
        loss = F.cross_entropy(seen.logits.detach() + extra, batch.targets)
        return loss.detach(), gradient(balanced + loss, here), seen.buffers

    return at


def _scores(head: Head, params: Params, features: Tensor) -> Tensor:
    weight = params[_OWN + head.weight]
    bias = None if head.bias is None else params[_OWN + head.bias]
    return F.linear(features.to(weight.dtype), weight, bias)

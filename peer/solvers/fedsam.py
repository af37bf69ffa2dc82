"""FedSAM: SGD along gradients that are taken a step uphill, which leads to flat minima.

Caldarola et al., 2022, arXiv 2203.11834; Qu et al., 2022, arXiv 2206.02618; both with the step of
Foret et al., 2021, arXiv 2010.01412: from w go `rho * g / ||g||` uphill, over all parameters, take
the gradient there, and follow it from w. Two passes a step. `rho = 0` is SGD.
"""

from dataclasses import dataclass, field

from torch import Tensor

from peer.models.split import SplitModel
from peer.options.solvers import FedSamOptions
from peer.solvers.base import Batch, Progress, Task
from peer.solvers.descent import Descent, Slope, descend, slope
from peer.solvers.slopes import length, scaled
from protocol.params import NO_STATE, Params, State, add
from protocol.round import Start, Trained

__all__ = ["FedSam"]

_TINY = 1e-16  # as Caldarola et al. have it: a gradient of zero leads nowhere


@dataclass(frozen=True, slots=True)
class FedSam:
    options: FedSamOptions = field(default_factory=FedSamOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        way = Descent.of(self.options.descent, _from_uphill(self.options.rho))
        return descend(start, task, way, seed, progress), state


def _from_uphill(rho: float) -> Slope:
    if not rho:
        return slope

    def at(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        loss, grad, moved = slope(task, params, buffers, batch)
        uphill = add(params, scaled(grad, rho / (length(grad) + _TINY)))
        # buffers are those of the first pass: the second is at a point that nobody will be at
        _, grad, _ = slope(task, uphill, buffers, batch)
        return loss, grad, moved

    return at

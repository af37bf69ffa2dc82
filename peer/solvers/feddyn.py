"""FedDyn, the local half: the loss is bent so that its minimum is the common one's.

Acar et al., 2021, ICLR, Algorithm 1. In every round a peer minimises

    F_i(w) - <h_i, w> + alpha / 2 * ||w - start||^2,   then   h_i <- h_i - alpha (trained - start)

With exact minimisation h_i is the gradient of F_i at `trained`. It is the peer's state; nothing is
sent but the parameters. The norm is squared, and the linear term is subtracted. Gradients of the
whole are clipped: few steps or a large alpha let h_i grow without bound.
"""

from dataclasses import dataclass, field

import torch

from peer.models.split import SplitModel
from peer.options.solvers import FedDynOptions
from peer.solvers.base import Progress, Task
from peer.solvers.descent import Descent, descend
from peer.solvers.slopes import clipped, pulled, tilted
from protocol.params import State, add, pairwise, sub
from protocol.round import Start, Trained

__all__ = ["FedDyn"]

_GRADIENT = "gradient"  # of the state: h_i


@dataclass(frozen=True, slots=True)
class FedDyn:
    options: FedDynOptions = field(default_factory=FedDynOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return {
            _GRADIENT: {
                # float32 at least: it is carried over many rounds
                name: torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32))
                for name, t in start.params.items()
            }
        }

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        options, own = self.options, state[_GRADIENT]
        against = pairwise(lambda h, t: -h.to(t.dtype), own, start.params)
        bent = tilted(against, pulled(start.params, options.alpha))
        way = Descent.of(options.descent, clipped(options.clip, bent))
        trained = descend(start, task, way, seed, progress)
        moved = pairwise(lambda m, h: m.to(h.dtype), sub(trained.params, start.params), own)
        return trained, {_GRADIENT: add(own, moved, factor=-options.alpha)}

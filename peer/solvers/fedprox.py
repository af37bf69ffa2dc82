"""FedProx: SGD with a pull to the start.

Li et al., 2020, arXiv 1812.06127, Eq. 2: the loss gains `mu / 2 * ||w - start||^2`, so the gradient
gains `mu * (w - start)`. The norm is squared and the start is a constant. `mu = 0` is SGD.
"""

from dataclasses import dataclass, field, replace

from peer.models.split import SplitModel
from peer.options.solvers import FedProxOptions
from peer.solvers.base import Progress, Task
from peer.solvers.descent import Descent, descend
from peer.solvers.optimiser import Momentum
from peer.solvers.private import way_of
from peer.solvers.slopes import pulled
from protocol.params import NO_STATE, State
from protocol.round import Start, Trained

__all__ = ["FedProx"]


@dataclass(frozen=True, slots=True)
class FedProx:
    options: FedProxOptions = field(default_factory=FedProxOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        optimiser, mu = Momentum(self.options.descent), self.options.mu
        private = way_of(self.options.privacy, seed)
        way = Descent(
            optimiser=optimiser,
            epochs=self.options.descent.epochs,
            follow=pulled(start.params, mu, private.follow),
            passes=private.passes,
        )
        trained = descend(start, task, way, seed, progress)
        # the pull weakens early gradients, and FedNova is to know by how much
        nova_a = optimiser.weight_of_steps(trained.num_steps, pull=mu)
        return replace(trained, nova_a=nova_a), state

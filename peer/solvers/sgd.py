"""SGD: plain local training, and the base line of every other solver."""

from dataclasses import dataclass, field

from peer.models.split import SplitModel
from peer.options.methods import DescentOptions
from peer.solvers.base import Progress, Task
from peer.solvers.descent import Descent, descend
from peer.solvers.optimiser import Momentum
from protocol.params import NO_STATE, State
from protocol.round import Start, Trained

__all__ = ["Sgd"]


@dataclass(frozen=True, slots=True)
class Sgd:
    options: DescentOptions = field(default_factory=DescentOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        way = Descent(optimiser=Momentum(self.options), epochs=self.options.epochs)
        return descend(start, task, way, seed, progress), state

"""SGD: plain local training, and the base line of every other solver."""

from dataclasses import dataclass, field

from peer.models.split import SplitModel
from peer.options.solvers import SgdOptions
from peer.solvers.base import Progress, Task
from peer.solvers.descent import Descent, descend
from peer.solvers.private import way_of
from protocol.params import NO_STATE, State
from protocol.round import Start, Trained

__all__ = ["Sgd"]


@dataclass(frozen=True, slots=True)
class Sgd:
    options: SgdOptions = field(default_factory=SgdOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        private = way_of(self.options.privacy, seed)
        way = Descent.of(self.options.descent, private.follow, passes=private.passes)
        return descend(start, task, way, seed, progress), state

"""FedIC (reconstruction), the local half: features are pulled to the prototype of the own cluster.

See peer/mixers/fedic.py for the source and for what is not the authors'. The local loss is CE +
pull * MSE(z, prototype of the class in the own cluster). Sent beside the model are the mean of z
for each class and its mean squared length, from which the mixer knows how sure the mean is.
"""

from dataclasses import dataclass, field, replace

from peer.models.split import SplitModel
from peer.options.solvers import PrototypeOptions
from peer.prototypes import Prototypes
from peer.solvers.base import Progress, Task
from peer.solvers.features import descend_towards, measured
from protocol.params import NO_STATE, Params, State
from protocol.round import Start, Trained

__all__ = ["FedICSolver"]


@dataclass(frozen=True, slots=True)
class FedICSolver:
    options: PrototypeOptions = field(default_factory=PrototypeOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def opening(self, model: SplitModel) -> Params:
        return Prototypes.none(model.start.params[model.head.weight]).extras(squares=True)

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        trained = descend_towards(self.options, start, task, seed, progress)
        return replace(trained, extras=measured(task, trained).extras(squares=True)), state

"""FedProto, the local half: features are pulled to what all peers have on average for their class.

Tan et al., 2022, arXiv 2105.00243. The local loss is CE + pull * MSE(z, prototype of the class);
what is sent is the mean of z over the own examples of each class. The authors' code takes that mean
as the weights move during the last epoch; here the model that training ends with is asked, in
evaluation mode, which costs one pass without gradients.
"""

from dataclasses import dataclass, field, replace

from peer.models.split import SplitModel
from peer.options.solvers import PrototypeOptions
from peer.prototypes import Prototypes
from peer.solvers.base import Progress, Task
from peer.solvers.features import descend_towards, measured
from protocol.params import NO_STATE, Params, State
from protocol.round import Start, Trained

__all__ = ["FedProtoSolver"]


@dataclass(frozen=True, slots=True)
class FedProtoSolver:
    options: PrototypeOptions = field(default_factory=PrototypeOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def opening(self, model: SplitModel) -> Params:
        return Prototypes.none(model.start.params[model.head.weight]).extras()

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        trained = descend_towards(self.options, start, task, seed, progress)
        return replace(trained, extras=measured(task, trained).extras()), state

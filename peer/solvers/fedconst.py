"""FedCONST: rows of weights move only where their value at the start of the round leaves them free.

Kim et al., 2025, PMLR 267:30248. The displacement from the start is projected after every step,
whatever the step was: momentum, weight decay or Adam's scaling cannot break a constraint. So the
norm of a row never shrinks, and weight decay under SGD is a pull to the start (FedProx with mu =
weight_decay). Convolution and linear weights are constrained, the classifier included; biases and
normalisation layers are not.
"""

from dataclasses import dataclass, field, replace

from peer.models.split import SplitModel
from peer.options.methods import FedConstOptions
from peer.solvers.base import Progress, Task
from peer.solvers.descent import Descent, descend
from peer.solvers.optimiser import Adam, Momentum
from peer.solvers.private import way_of
from peer.solvers.reference import referenced
from peer.solvers.rows import Anchor, centred
from protocol.params import NO_STATE, State
from protocol.round import Start, Trained

__all__ = ["FedConst"]


@dataclass(frozen=True, slots=True)
class FedConst:
    """Constrained SGD, or Adam.

    The peer's own start point is the reference G, with `reference = start`. Where peers start from
    different points (every peer from its own mix), rows stay centred through mixing, but
    orthogonality to the start holds within a round only. With `reference = relay` G is the relay's
    newest model: every peer's update is orthogonal to the same rows, and so is what the relay makes
    of them. Until one has come, the start is the reference.
    """

    options: FedConstOptions = field(default_factory=FedConstOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        """Centre the rows of the initial model, without which they never have mean zero."""
        if not self.options.center_init:
            return model
        start = replace(model.start, params=centred(model.start.params, model.rows))
        return replace(model, start=start)

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        reference = start.params
        if self.options.reference == "relay":
            reference, state = referenced(start, state)
        rule = Adam if self.options.optimiser == "adam" else Momentum
        private = way_of(self.options.privacy, seed)
        way = Descent(
            optimiser=rule(self.options.descent),
            epochs=self.options.descent.epochs,
            follow=private.follow,
            passes=private.passes,
            confine=Anchor.at(start.params, task.rows, self.options.mode, reference).confine,
        )
        return descend(start, task, way, seed, progress), state

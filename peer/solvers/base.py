"""The solver slot: from a start point to a trained one, on local data alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from peer.models.split import Mode, Pass, SplitModel
from protocol.params import Params, State
from protocol.round import Start, Trained

__all__ = ["Batch", "Opening", "Progress", "Solver", "Task"]


class Batch(NamedTuple):
    inputs: Tensor  # (batch, ...) as the model takes them, on the task's device
    targets: Tensor  # (batch,) int64


Progress = Callable[[int, int], None]  # (steps done, steps planned); called after every step


class Task(Protocol):
    """A peer's learning problem: its data and its loss, never its identity."""

    @property
    def model(self) -> SplitModel:
        """The model as the solver has adapted it."""

    @property
    def num_examples(self) -> int: ...

    @property
    def class_counts(self) -> tuple[int, ...]: ...

    @property
    def num_batches(self) -> int:
        """Batches in one pass, >= 1."""

    @property
    def rows(self) -> Mapping[str, int]:
        """Convolution and linear weights by name, and the axis of their output channels."""

    @property
    def everything(self) -> Batch:
        """All local training data, in an order that stays."""

    def batches(self, seed: int) -> Iterator[Batch]:
        """One shuffled pass; equal seeds give equal passes."""

    def loss(self, params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, Params]:
        """Mean loss in nats in training mode: (), differentiable in `params`; and new buffers."""

    def look(
        self,
        params: Params,
        buffers: Params,
        batch: Batch,
        mode: Mode = Mode.TRAIN,
        watch: Sequence[str] = (),
    ) -> Pass:
        """The model on a batch, with a look inside (`SplitModel.run`), as training runs it.

        Logits and features are float32 at least.
        """

    def full_loss(self, params: Params, buffers: Params) -> float:
        """Mean loss in nats over all local training data, in evaluation mode."""


class Solver(Protocol):
    """Trains on a peer's own data."""

    def adapt(self, model: SplitModel) -> SplitModel:
        """The model as this solver wants it, before round 0; the same on every peer."""

    def init(self, start: Start) -> State:
        """State before the first round."""

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        """Result and next state; equal arguments give equal results.

        Dropout draws from the global generators: callers run this inside `seeded`. After a
        divergence `train_loss` is not finite.
        """


@runtime_checkable
class Opening(Protocol):
    """What a solver also has whose results carry extras."""

    def opening(self, model: SplitModel) -> Params:
        """Extras of round 0, before any training: of the layout that they keep ever after."""

"""The mixer slot: from what arrived to where training starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from protocol.params import Params, State
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["Head", "Mixer", "Probe"]


@dataclass(frozen=True, slots=True)
class Head:
    """Names of the classifier's tensors: the model's declared split."""

    weight: str  # (classes, width)
    bias: str | None  # (classes,)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


class Probe(Protocol):
    """Questions put to fixed batches of this peer's training data, dropout off.

    Models with BatchNorm use the batch's statistics and leave their buffers alone.
    """

    @property
    def head(self) -> Head: ...

    @property
    def num_batches(self) -> int:
        """At least 1; the paper of FedC2I uses 1."""

    def targets(self, batch: int = 0) -> Tensor:
        """(batch,) int64."""

    def loss(self, params: Params, batch: int = 0) -> float:
        """Mean cross-entropy in nats, reduced in float64."""

    def features(self, params: Params, batch: int = 0) -> Tensor:
        """What the head sees: (batch, width)."""


class Mixer(Protocol):
    """Turns a peer's own result and its neighbours' into its next start point.

    A mixer combines parameters and says with which weights; buffers are filled in by
    `peer.mixers.buffers.WithBuffers` around every mixer. What it is given has passed admission:
    one layout, finite numbers.
    """

    def init(self, start: Start) -> State:
        """State before the first round."""

    def share(self, trained: Trained, head: Head) -> Trained | None:
        """What leaves this peer, of the same layout in every round; None for nothing.

        `head` names the classifier, which some methods keep to themselves.
        """

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        """Next start point with its evidence (`client_weight` at least), and next state.

        `others` is sorted by sender, may be empty, and does not hold the own sender.
        """

"""What a node's membership wants done, and what it tells. Who carries it out decides nothing."""

from dataclasses import dataclass
from typing import TypeAlias

from protocol.ids import RunId
from protocol.manifest import Manifest
from protocol.wire.messages import CoordinatorMessage, Epoch, SignedView, View

__all__ = [
    "CoordinatorBack",
    "CoordinatorLost",
    "Effect",
    "GaveUp",
    "Refused",
    "Send",
    "Settled",
    "SplitView",
    "Unsettled",
    "ViewChanged",
    "WakeAt",
]


@dataclass(frozen=True, slots=True)
class Send:
    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class WakeAt:
    at_s: float


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Nobody has settled the manifest: complete these lines and call `settle`. Told once."""

    options: Manifest


@dataclass(frozen=True, slots=True)
class Settled:
    """The manifest stands: build the model and call `ready`. Told once."""

    run: RunId
    options: Manifest


@dataclass(frozen=True, slots=True)
class ViewChanged:
    view: View
    signed: SignedView  # as the coordinator signed it, to be passed on


@dataclass(frozen=True, slots=True)
class SplitView:
    """The coordinator's key signed two views of this epoch: two processes lead the run."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Refused:
    """The coordinator or the manifest said no: it is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Never admitted, and out of patience: it is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """Not heard of for a whole lease. The run goes on with the members that are known."""

    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorBack:
    pass


Effect: TypeAlias = (
    Send
    | WakeAt
    | Unsettled
    | Settled
    | ViewChanged
    | SplitView
    | Refused
    | GaveUp
    | CoordinatorLost
    | CoordinatorBack
)

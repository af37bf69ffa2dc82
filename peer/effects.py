"""What the round machine wants done. Whoever carries these out decides nothing."""

from dataclasses import dataclass
from typing import TypeAlias

from peer.record import RoundRecord
from peer.work import Command, SnapshotRef
from protocol.ids import PeerId
from protocol.wire.messages import SnapshotManifest

__all__ = [
    "Effect",
    "End",
    "Farewell",
    "Fetch",
    "Happened",
    "Order",
    "Question",
    "Record",
    "Serve",
    "Tell",
    "WakeAt",
]


@dataclass(frozen=True, slots=True)
class Question:
    """Ask a neighbour for its result of a round; the question stands until it is answered."""

    neighbour: PeerId
    round_no: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Pull a snapshot into one of the two receive buffers of that neighbour."""

    neighbour: PeerId
    manifest: SnapshotManifest
    digest: bytes
    slot: int


@dataclass(frozen=True, slots=True)
class Order:
    """Give the trainer a command."""

    command: Command


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve this snapshot from now on."""

    snapshot: SnapshotRef
    round_no: int


@dataclass(frozen=True, slots=True)
class Tell:
    """What this peer is doing, for whoever asks for what it has not yet."""

    round_no: int
    phase: str
    fraction: float
    eta_s: float


@dataclass(frozen=True, slots=True)
class Farewell:
    """Tell a neighbour that nothing more is needed of it."""

    neighbour: PeerId


@dataclass(frozen=True, slots=True)
class Record:
    record: RoundRecord


@dataclass(frozen=True, slots=True)
class Happened:
    """A change of state worth a line: lost, returned, left, late."""

    event: str
    peer: PeerId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The run is over for this peer."""

    reason: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    at_s: float


Effect: TypeAlias = (
    Question | Fetch | Order | Serve | Tell | Farewell | Record | Happened | End | WakeAt
)

"""What the threads of the data plane and of the journal tell the node."""

from dataclasses import dataclass
from typing import TypeAlias

from peer.effects import Keep
from protocol.ids import PeerId

__all__ = [
    "Crashed",
    "Event",
    "Journalled",
    "Misbehaved",
    "PeerDone",
    "Progressed",
    "PullFailed",
    "Pulled",
    "Served",
    "ShutOut",
]


@dataclass(frozen=True, slots=True)
class PeerDone:
    """This peer needs nothing more of us. It may be told again."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Served:
    """So much was sent to this peer since this was last told, about once a second."""

    peer: PeerId
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Misbehaved:
    """An admitted peer broke the protocol; it is not listened to for a while."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class ShutOut:
    """An admitted peer filled our memory: its key is refused here from now on."""

    peer: PeerId
    key: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """A pull goes on: so many bytes of the body are in."""

    ticket: int
    neighbour: PeerId
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """The whole body is in its file, and every tensor is what the manifest says."""

    ticket: int
    neighbour: PeerId
    num_bytes: int  # that came for it; what was held already did not


@dataclass(frozen=True, slots=True)
class PullFailed:
    """What is in the file is not to be used."""

    ticket: int
    neighbour: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class Journalled:
    """An entry is on the disk, and what waited for it may be done; else `trouble` says why not."""

    keep: Keep
    trouble: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """A thread of the data plane has ended by an error of ours: so must the process."""

    thread: str
    error: BaseException


Event: TypeAlias = (
    PeerDone
    | Served
    | Misbehaved
    | ShutOut
    | Progressed
    | Pulled
    | PullFailed
    | Journalled
    | Crashed
)

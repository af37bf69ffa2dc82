"""What the round machine and the node want done. Who carries it out decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from peer.entries import Entry
from peer.record import RoundRecord
from peer.settings import Settings
from peer.work import AloneDone, Command, Prepared, SnapshotRef
from protocol.ids import PeerId
from protocol.wire.link_effects import Step
from protocol.wire.messages import Epoch, Part, SignedView, SnapshotManifest
from protocol.wire.shelf import SNAPSHOTS_KEPT

__all__ = [
    "Act",
    "Compared",
    "Dial",
    "Effect",
    "End",
    "Farewell",
    "Fetch",
    "Goodbye",
    "HangUp",
    "Happened",
    "Keep",
    "Lobby",
    "Members",
    "Onward",
    "Open",
    "Order",
    "Over",
    "Question",
    "Record",
    "Say",
    "SayTo",
    "Serve",
    "Started",
    "Tell",
    "WakeAt",
]


@dataclass(frozen=True, slots=True)
class Question:
    """Ask a neighbour for its part of a round; the question stands until it is answered."""

    neighbour: PeerId
    round_no: int
    part: Part = Part.RESULT
    holds: bytes = b""  # name of what is here of its results, for it to step from


@dataclass(frozen=True, slots=True)
class Onward:
    """What of a snapshot need not be pulled: a step leads there from one that is here."""

    base: SnapshotRef
    step: Step


@dataclass(frozen=True, slots=True)
class Fetch:
    """Pull a snapshot into a receive buffer of that neighbour: 0 or 1, or 2 for a state."""

    neighbour: PeerId
    manifest: SnapshotManifest
    digest: bytes
    slot: int
    onward: Onward | None = None  # pull only the step, and carry it out


@dataclass(frozen=True, slots=True)
class Order:
    """Give the trainer a command."""

    command: Command


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve this snapshot from now on."""

    snapshot: SnapshotRef
    round_no: int
    kept: int = SNAPSHOTS_KEPT  # of the newest ones of its part, those that are served


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
class Keep:
    """Write this into the journal, and only then do the rest: nothing is shown before it is kept.

    A journal that no disk takes is told, and holds up nothing.
    """

    entry: Entry
    then: tuple[Serve | Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Happened:
    """A change of state worth a line: lost, returned, left, late."""

    event: str
    peer: PeerId | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The run is over for this peer."""

    reason: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    at_s: float


Effect: TypeAlias = (
    Question | Fetch | Order | Serve | Tell | Farewell | Record | Keep | Happened | End | WakeAt
)

# -- of the node around the machine -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """Send an encoded message to the coordinator."""

    header: bytes


@dataclass(frozen=True, slots=True)
class Dial:
    """Keep up a control connection to a neighbour; a new address replaces the old one."""

    neighbour: PeerId
    address: str
    key: bytes


@dataclass(frozen=True, slots=True)
class HangUp:
    """This peer was revoked: close every connection to it, in the middle of what it sends too."""

    neighbour: PeerId


@dataclass(frozen=True, slots=True)
class SayTo:
    """Send an encoded message to a neighbour."""

    neighbour: PeerId
    header: bytes


@dataclass(frozen=True, slots=True)
class Open:
    """Answer the members of this run from now on."""

    run: bytes
    schema: bytes


@dataclass(frozen=True, slots=True)
class Members:
    """Who may connect, and the view that says so, to be passed on."""

    names: Mapping[bytes, PeerId]  # every admitted key that is not revoked, and its name
    epoch: Epoch
    signed: SignedView


@dataclass(frozen=True, slots=True)
class Started:
    """The manifest is settled and the model is built."""

    run: bytes
    settings: Settings
    prepared: Prepared
    attack: str = ""  # how this peer harms the others; empty: it does not


@dataclass(frozen=True, slots=True)
class Lobby:
    ready: int
    founders: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A model trained on the own data alone has been evaluated."""

    done: AloneDone


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Tell all who are connected, and serve no more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing is left to do; the process ends with this exit code."""

    code: int
    reason: str


Act: TypeAlias = (
    Fetch
    | Order
    | Serve
    | Tell
    | Record
    | Keep
    | Happened
    | Say
    | Dial
    | HangUp
    | SayTo
    | Open
    | Members
    | Started
    | Lobby
    | Compared
    | Goodbye
    | Over
)

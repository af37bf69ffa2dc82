"""What of a run must outlive the coordinator's process: its manifest and its members.

Values only: the directory changes them, the journal writes them down.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from coordinator.refusals import Refusal
from coordinator.tokens import Token
from protocol.ids import PeerId, RunId
from protocol.manifest import Manifest
from protocol.wire.messages import MAX_MEMBERS, Epoch, Member, View

__all__ = ["UNKNOWN_INSTANCE", "Book", "Entry"]

NEVER = Epoch(0, 0)
UNKNOWN_INSTANCE = bytes(8)  # of a member that a rebuilt book knows from a view


@dataclass(slots=True, kw_only=True)
class Entry:
    """One member. It stays in the book for ever: its name is bound to its key."""

    name: PeerId
    role: str  # peer or relay
    address: str  # tcp://HOST:PORT as others reach it
    curve_key: bytes
    sign_key: bytes
    instance: bytes  # of the process that speaks for it
    superseded: tuple[bytes, ...] = ()  # processes that another one took over from, newest last
    ready: bool = False
    lost: bool = False  # its lease ran out
    left: bool = False
    revoked: bool = False  # for good: its key never comes back
    token: str = ""  # name of the one that it came in by
    returning: bool = False  # an earlier process was ready: it takes part still, once it is again
    round_no: int = 0  # a hint

    @property
    def state(self) -> str:
        if self.revoked:
            return "revoked"
        if self.left:
            return "left"
        if self.lost or (self.returning and not self.ready):
            return "lost"
        return "ready" if self.ready else "joining"

    def member(self) -> Member:
        return _member(
            self.name,
            self.role,
            self.state,
            self.address,
            self.curve_key,
            self.sign_key,
            self.round_no,
        )


# The same object while nothing changes: views of it are written faster.
_member = lru_cache(maxsize=MAX_MEMBERS)(Member)


@dataclass(slots=True, kw_only=True)
class Book:
    """One run."""

    run: RunId
    run_name: str
    token: bytes  # of the join string that the coordinator prints
    founders: int  # peers that the lobby waits for, >= 1
    relays: int = 0  # that the lobby waits for too
    bind: str = ""  # HOST:PORT, so that a restart is found where the join string says
    advertise: str = ""  # HOST
    incarnation: int = 0  # starts of the coordinator so far
    options: Manifest = field(default_factory=Manifest)
    settled: bool = False  # whether `options` is the whole manifest
    schema: bytes = b""  # digest of the layout of what is shared; empty until a peer is ready
    init: bytes = b""  # digest of the initial model; likewise
    founding: tuple[PeerId, ...] = ()  # round 1's roster, once it is fixed
    entries: dict[PeerId, Entry] = field(default_factory=dict)
    told: Epoch = NEVER  # of the newest view that was given out
    known: Epoch = NEVER  # newest of an earlier start whose members are all in here
    lost: bool = False  # the journal is gone: wait for a member that shows its view
    tokens: list[Token] = field(default_factory=list)  # oldest first; `token` is among them
    refused: dict[bytes, Refusal] = field(default_factory=dict)  # by key, oldest first

    def __post_init__(self) -> None:
        if not self.tokens:
            self.tokens.append(Token(secret=self.token))

    def name_of(self, key: bytes) -> PeerId | None:
        """The member whose key this is."""
        return next((e.name for e in self.entries.values() if e.curve_key == key), None)

    def view(self, counter: int) -> View:
        return View(
            run=self.run,
            run_name=self.run_name,
            epoch=Epoch(self.incarnation, counter),
            founders=self.founders,
            founding=self.founding,
            members=tuple(self.entries[name].member() for name in sorted(self.entries)),
            settled=self.settled,
            options=self.options.options(),
            schema=self.schema,
            init=self.init,
        )

    @property
    def is_complete(self) -> bool:
        """The lobby need not wait any more."""
        peers, relays = len(self.ready("peer")), len(self.ready("relay"))
        return peers >= self.founders and relays >= self.relays and not self.relays_to_come()

    def ready(self, role: str) -> tuple[PeerId, ...]:
        """Names of those of a role that are ready, sorted."""
        names = (e.name for e in self.entries.values() if e.role == role and e.state == "ready")
        return tuple(sorted(names))

    def relays_to_come(self) -> tuple[PeerId, ...]:
        """Relays that are building their model: they cannot begin before a peer has settled it.

        The lobby waits for them, so that a relay which came first is there from round 1; whoever
        leaves or outlives its lease is waited for no longer.
        """
        names = (
            e.name for e in self.entries.values() if e.role == "relay" and e.state == "joining"
        )
        return tuple(sorted(names))

"""One neighbour as a peer's round machine sees it: what it sent, and how long it is waited for.

No clock and no socket: the machine brings both. Two receive buffers (slots) alternate, so that an
aborted pull never destroys the last good snapshot.
"""

import math
from dataclasses import dataclass

from peer.effects import Onward
from peer.pace import Arrivals, Pace
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.wire.link_effects import Step
from protocol.wire.messages import NotYet

__all__ = ["Held", "Neighbour", "Pulling"]


@dataclass(frozen=True, slots=True)
class Held:
    """An admitted snapshot, and the receive buffer that it lies in."""

    round_no: int
    snapshot: SnapshotRef
    slot: int


@dataclass(slots=True)
class Pulling:
    """A snapshot on its way: being received, then inspected by the trainer."""

    digest: bytes
    round_no: int
    slot: int
    snapshot: SnapshotRef | None = None  # once it is here whole


@dataclass(slots=True)
class Neighbour:
    name: PeerId
    good: Held | None = None  # last-known-good
    pulling: Pulling | None = None
    connected: bool = False
    gone: bool = False  # it said goodbye, or the view says that it left
    lost: bool = False  # given up in an earlier round, and silent since
    said_done: bool = False  # needs nothing more of us
    knows_done: bool = False  # knows that we need nothing more of it
    heard_s: float = -math.inf  # last sign of life
    news: NotYet | None = None  # what it said that it is doing
    news_s: float = -math.inf
    broke_word: bool = False  # held a round up by what it said, and nothing has come since
    fault: str = ""  # why its newest result was refused in this round
    cut: str = ""  # why the plan of faults lets the exchange with it fail in this round
    failures: int = 0  # of pulls in this round
    doubted: bytes = b""  # name of the result that was here when one failed: none steps from it
    arrivals: Arrivals | None = None

    def begin(self) -> None:
        """A new round: forget what belongs to the last one."""
        self.news, self.news_s = None, -math.inf
        self.fault, self.cut, self.failures = "", "", 0

    def heard(self, now_s: float) -> bool:
        """Note a sign of life; True if it had been given up."""
        returned = self.lost
        self.heard_s, self.lost = now_s, False
        return returned

    def has(self, round_no: int) -> bool:
        """Is what it sent at least as new as `round_no`?"""
        return self.good is not None and self.good.round_no >= round_no

    @property
    def holds(self) -> bytes:
        """Name of the result that it may step from; empty while it is to send a whole one."""
        held = self.good.snapshot.digest if self.good is not None else b""
        return held if held != self.doubted else b""

    def failed(self) -> int:
        """Note that a pull came to nothing, maybe for what is here; how many did in this round."""
        self.pulling = None
        self.failures += 1
        self.doubted = self.good.snapshot.digest if self.good is not None else b""
        return self.failures

    def onward(self, step: Step | None) -> Onward | None:
        """How to get by a step where it leads; None where it does not begin at what is here."""
        if step is None or self.good is None or self.holds != step.manifest.base:
            return None
        return Onward(self.good.snapshot, step)

    def settled(self, round_no: int) -> bool:
        """Nothing more is to be expected of it in this COLLECT."""
        return self.has(round_no) or self.gone or bool(self.fault or self.cut)

    @property
    def told_s(self) -> float:
        """How long it says that it needs, in seconds; 0 where it says nothing that counts."""
        return self.news.eta_s if self.news is not None and not self.broke_word else 0.0

    def spare_slot(self) -> int:
        return 0 if self.good is None or self.good.slot == 1 else 1

    def file(self, held: Held) -> None:
        """Take what was admitted; its sender's word counts, whatever it had said before."""
        self.good, self.broke_word = held, False

    def arrived(self, waited_s: float) -> None:
        if self.arrivals is None:
            self.arrivals = Arrivals()
        self.arrivals.add(waited_s)

    @property
    def is_inspected(self) -> bool:
        """Is its newest result here whole, so that only our own trainer is waited for?"""
        return self.pulling is not None and self.pulling.snapshot is not None

    def silent_s(self, began_s: float, pace: Pace) -> float:
        """The instant at which it will have been silent too long, if it goes on like this."""
        if self.is_inspected:
            return math.inf  # it has done all that it was asked for
        return max(self.heard_s, began_s) + pace.silence_s

    def give_up_s(self, began_s: float, pace: Pace, *, ahead: int = 0) -> float:
        """The instant at which this neighbour is waited for no longer, the quorum being in.

        A lost one gets the grace only. Else it is the end of its silence, or what its own history
        and its own word let expect, whichever comes first.

        Args:
            began_s: when the COLLECT began.
            pace: how long to wait.
            ahead: rounds that this peer has sat out and the neighbour has yet to play.
        """
        if self.lost:
            return began_s + pace.grace_s
        silent_s = self.silent_s(began_s, pace)
        expected_s = math.inf
        if (
            self.arrivals is not None
            and (within_s := self.arrivals.expected_within_s()) is not None
        ):
            expected_s = began_s + within_s * (1 + ahead) + pace.grace_s
        if self.told_s > 0.0:
            by_s = self.news_s + 2.0 * self.told_s + pace.grace_s
            expected_s = by_s if math.isinf(expected_s) else max(expected_s, by_s)
        if self.pulling is not None and self.heard_s > began_s:
            expected_s = max(expected_s, silent_s)  # bytes are flowing: only silence ends that
        return min(silent_s, expected_s)

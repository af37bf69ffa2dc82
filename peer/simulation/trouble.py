"""What the faults do to a simulated world: to its ways, its hosts and its coordinator.

Those in seconds count from the instant at which the first peer began round 1. Those in rounds that
are no part of the plan (peer/faults/plan.py) befall a peer while it plays those rounds. Decides
what is in force; `world.py` carries it out.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random

from peer.faults.table import Fault, Kind, with_ends
from protocol.errors import ConfigError

__all__ = ["Moment", "Trouble"]

_IN_PLAN = {Kind.PARTITION, Kind.HEAL, Kind.LOSS, Kind.RANDOM, Kind.LEAVE, Kind.JOIN}
_OF_WAYS = {Kind.PARTITION, Kind.LOSS, Kind.DELAY, Kind.JITTER, Kind.BANDWIDTH, Kind.CORRUPT}
_REFUSED: Mapping[Kind, str] = {
    Kind.DISK_FULL: "a simulated peer shares its disk with all others",
}
FRAME_BYTES = 1 << 20  # of a pull: each may be changed on its way


class Trouble:
    def __init__(self, faults: Iterable[Fault] = (), *, seed: int = 0) -> None:
        """Sort the tables out.

        Raises:
            ConfigError: a kind that no simulation can carry out.
        """
        faults = tuple(faults)
        for fault in faults:
            if fault.kind in _REFUSED:
                raise ConfigError(
                    f"[[fault]] {fault.number} ({fault.kind}) cannot be simulated: "
                    f"{_REFUSED[fault.kind]}",
                    hint="`peer launch` carries it out on real processes",
                )
        active = [f for f in faults if not (f.span.in_rounds and f.kind in _IN_PLAN)]
        self._ways = [fault for fault in with_ends(active) if fault.kind in _OF_WAYS]
        self._slow = [fault for fault in active if fault.kind is Kind.SLOW]
        self.deeds = [
            fault
            for fault in active
            if fault.kind not in _OF_WAYS and fault.kind not in {Kind.SLOW, Kind.HEAL}
        ]  # something is to be done when they begin, and maybe when they end
        self.began_s: float | None = None  # when the first peer began round 1
        self._chance = Random(seed)

    def _in_force(self, kind: Kind, sender: str, receiver: str, at: "Moment") -> list[Fault]:
        return [
            fault
            for fault in self._ways
            if fault.kind is kind
            and fault.carries(sender, receiver)
            and (self._is_on(fault, sender, at) or self._is_on(fault, receiver, at))
        ]

    def _is_on(self, fault: Fault, name: str, at: "Moment") -> bool:
        if fault.span.in_rounds:
            return fault.span.has_round(at.round_of(name))
        return self.began_s is not None and fault.span.has_instant(at.now_s - self.began_s)

    def is_cut(self, sender: str, receiver: str, at: "Moment") -> bool:
        """Does nothing come through?"""
        return bool(self._ways and self._in_force(Kind.PARTITION, sender, receiver, at))

    def is_lost(self, sender: str, receiver: str, at: "Moment") -> bool:
        """Draw: does this message not arrive?"""
        return any(
            self._chance.random() < fault.rate
            for fault in (self._in_force(Kind.LOSS, sender, receiver, at) if self._ways else ())
        )

    def extra_s(self, sender: str, receiver: str, at: "Moment") -> float:
        """How much longer this message takes, in seconds."""
        if not self._ways:
            return 0.0
        delays = self._in_force(Kind.DELAY, sender, receiver, at)
        jitters = self._in_force(Kind.JITTER, sender, receiver, at)
        drawn = sum(self._chance.uniform(0.0, fault.seconds) for fault in jitters)
        return sum(fault.seconds for fault in delays) + drawn

    def changed(self, sender: str, receiver: str, header: bytes, at: "Moment") -> bytes:
        """The message as it arrives: perhaps with one bit that is another."""
        for fault in self._in_force(Kind.CORRUPT, sender, receiver, at) if self._ways else ():
            if header and self._chance.random() < fault.rate:
                place, bit = self._chance.randrange(len(header)), self._chance.randrange(8)
                flipped = bytes([header[place] ^ (1 << bit)])
                header = header[:place] + flipped + header[place + 1 :]
        return header

    def pull_s(
        self, sender: str, receiver: str, num_bytes: int, mb_s: float, at: "Moment"
    ) -> float:
        """Seconds of so many bytes; what is lost is sent again, and takes its time again."""
        for fault in self._in_force(Kind.BANDWIDTH, sender, receiver, at) if self._ways else ():
            mb_s = min(mb_s, fault.mbit / 8.0)
        kept = 1.0
        for fault in self._in_force(Kind.LOSS, sender, receiver, at) if self._ways else ():
            kept *= max(1.0 - fault.rate, 0.01)
        return num_bytes / (mb_s * 1e6 * kept) + self.extra_s(sender, receiver, at)

    def is_spoilt(self, sender: str, receiver: str, num_bytes: int, at: "Moment") -> bool:
        """Draw: did a frame of this pull arrive changed? Its digest tells."""
        frames = max(1, -(-num_bytes // FRAME_BYTES))
        return any(
            self._chance.random() < 1.0 - (1.0 - fault.rate) ** frames
            for fault in (self._in_force(Kind.CORRUPT, sender, receiver, at) if self._ways else ())
        )

    def slowness(self, name: str, at: "Moment") -> float:
        """How many times longer this peer's trainer takes."""
        factor = 1.0
        for fault in self._slow:
            if fault.befalls(name) and self._is_on(fault, name, at):
                factor *= fault.factor
        return factor


class Moment:
    """An instant of the world, and where its peers are."""

    def __init__(self, now_s: float, round_of: Callable[[str], int]) -> None:
        self.now_s = now_s
        self.round_of = round_of

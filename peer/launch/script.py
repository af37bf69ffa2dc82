"""Faults that befall processes: who is killed, frozen, started again, and when. Pure.

Those that a peer carries out by itself are not here: what is given in rounds of partition, loss,
random, join and leave (`peer/faults/plan.py`), and what happens to its messages
(`peer/faults/weather.py`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from peer.faults.table import Fault, Kind, needs_launcher
from peer.launch.board import COORDINATOR

__all__ = ["Cue", "Do", "Script"]


class Do(StrEnum):
    KILL = "killed"
    START = "started"
    FREEZE = "frozen"
    THAW = "goes on"
    LEAVE = "asked to leave"
    FILL = "finds its disk full"
    FREE = "finds room on its disk"


@dataclass(frozen=True, slots=True)
class Cue:
    """What is to be done to whom, by which table of the file."""

    do: Do
    name: str
    fault: int  # its number

    def __str__(self) -> str:
        verb = "" if self.do in {Do.THAW, Do.FILL, Do.FREE} else "is "
        return f"fault {self.fault}: {self.name} {verb}{self.do}"


@dataclass(frozen=True, slots=True)
class _Beat:
    """One thing to do: in rounds, when its name is there; if that stands still, when anybody is."""

    cue: Cue
    at_s: float | None
    at_round: int | None
    after: int | None = None  # the beat that must have been before it

    def is_due(self, rounds: Mapping[str, int], running: Collection[str], since_s: float) -> bool:
        if self.at_s is not None:
            return since_s >= self.at_s
        name = self.cue.name
        plays = name in running and name in rounds and self.cue.do is not Do.THAW
        reached = rounds[name] if plays else max(rounds.values(), default=0)
        return self.at_round is not None and reached >= self.at_round


# What a kind does to a process at its beginning, and at its end.
_DOES: Mapping[Kind, tuple[tuple[Do, ...], tuple[Do, ...]]] = {
    Kind.KILL: ((Do.KILL,), (Do.START,)),
    Kind.RESTART: ((Do.KILL, Do.START), ()),
    Kind.FREEZE: ((Do.FREEZE,), (Do.THAW,)),
    Kind.LEAVE: ((Do.LEAVE,), ()),
    Kind.JOIN: ((Do.START,), ()),
    Kind.DISK_FULL: ((Do.FILL,), (Do.FREE,)),
    Kind.COORDINATOR_DOWN: ((Do.KILL,), (Do.START,)),
    Kind.COORDINATOR_UP: ((Do.START,), ()),
    Kind.RELAY_DOWN: ((Do.KILL,), (Do.START,)),
    Kind.RELAY_UP: ((Do.START,), ()),
}


class Script:
    def __init__(self, faults: Iterable[Fault], *, relay: str | None = None) -> None:
        """Write it for the faults of a run, which may have a relay of this name."""
        self._beats: list[_Beat] = []
        self._played: set[int] = set()  # indices of beats
        self._late: set[str] = set()
        for fault in faults:
            if needs_launcher(fault):
                for name in _whom(fault, relay):
                    self._write(fault, name)

    @property
    def late(self) -> frozenset[str]:
        """Who is not started at the beginning."""
        return frozenset(self._late)

    def starts_by_the_clock(self) -> bool:
        """Will somebody still be started at an instant, whatever the others do meanwhile?"""
        return any(
            beat.cue.do is Do.START and beat.at_s is not None
            for number, beat in enumerate(self._beats)
            if number not in self._played
        )

    def moves_by_the_clock(self, name: str) -> bool:
        """Will something befall this one at an instant, whatever the others do meanwhile?"""
        return any(
            beat.cue.name == name and beat.at_s is not None and beat.cue.do is not Do.FREEZE
            for number, beat in enumerate(self._beats)
            if number not in self._played
        )

    def due(
        self, rounds: Mapping[str, int], running: Collection[str], since_s: float
    ) -> Iterator[Cue]:
        """Hand out what is to be done now, each thing once.

        Args:
            rounds: that every peer and relay is in; 0 before the first.
            running: who has a process.
            since_s: since round 1 began.
        """
        for number, beat in enumerate(self._beats):
            ready = beat.after is None or beat.after in self._played
            if number in self._played or not ready:
                continue
            if beat.is_due(rounds, running, since_s):
                self._played.add(number)
                yield beat.cue

    def _write(self, fault: Fault, name: str) -> None:
        begins, ends = _DOES[fault.kind]
        span = fault.span
        for do in begins:
            self._beats.append(_Beat(Cue(do, name, fault.number), span.at_s, span.at_round))
        if fault.kind is Kind.JOIN:
            self._late.add(name)
        if not span.is_open:
            before = len(self._beats) - 1
            for do in ends:
                cue = Cue(do, name, fault.number)
                self._beats.append(_Beat(cue, span.until_s, span.until_round, before))


def _whom(fault: Fault, relay: str | None) -> tuple[str, ...]:
    relays = (relay,) if relay is not None else ()
    if fault.kind in {Kind.COORDINATOR_DOWN, Kind.COORDINATOR_UP}:
        return (COORDINATOR,)
    if fault.kind in {Kind.RELAY_DOWN, Kind.RELAY_UP}:
        return tuple(name for name in relays if fault.befalls(name))
    return fault.peers

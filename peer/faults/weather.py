"""What the faults do to one real peer's messages and to its trainer, at each instant.

Those in seconds count from the beginning of round 1, as this peer saw it or was told; those in
rounds hold while it plays them. Partition and loss in rounds are not messages' business but the
plan's (`peer/faults/plan.py`). Asked from several threads, told by one.
"""

import math
from collections.abc import Iterable, Mapping

from peer.faults.table import Fault, Kind, with_ends
from protocol.ids import PeerId
from protocol.transport.ways import CALM, Way

__all__ = ["BEGAN", "LAUNCHED", "PeerWeather"]

LAUNCHED = "KINFOLK_LAUNCHED"  # likewise, of whoever has a launcher that carries its faults out
BEGAN = "KINFOLK_BEGAN"  # variable of the environment: when round 1 began, in seconds since 1970

_OF_PLAN = {Kind.PARTITION, Kind.LOSS}  # when they are given in rounds
_OF_WAYS = {
    Kind.PARTITION,
    Kind.LOSS,
    Kind.DELAY,
    Kind.JITTER,
    Kind.BANDWIDTH,
    Kind.CORRUPT,
}


class PeerWeather:
    def __init__(
        self, faults: Iterable[Fault], *, me: PeerId, began_s: float | None = None
    ) -> None:
        """Sort the tables out.

        Args:
            faults: of the run.
            me: this peer's name.
            began_s: when round 1 began, by the clock whose instants will be asked for; None lets it
                begin when this peer is told to be in it.
        """
        self._me = me
        here = [fault for fault in faults if not (fault.span.in_rounds and fault.kind in _OF_PLAN)]
        self._of_ways = [fault for fault in with_ends(here) if fault.kind in _OF_WAYS]
        self._slow = [f for f in here if f.kind is Kind.SLOW and f.befalls(me)]
        self._began_s = math.inf if began_s is None else began_s
        self._names: Mapping[bytes, PeerId] = {}
        self._round_no = 0

    def __bool__(self) -> bool:
        """Will there ever be anything but fair weather on a way?"""
        return bool(self._of_ways)

    # -- what this peer learns ---------------------------------------------------------------------

    def members(self, names: Mapping[bytes, PeerId]) -> None:
        """Take note of who is who, by CURVE key; with a key of none of them the weather is fair."""
        self._names = names

    def began(self, at_s: float) -> None:
        """Take note of when round 1 began, where nobody has said it: an earlier process knew."""
        self._began_s = min(self._began_s, at_s)

    def plays(self, round_no: int, now_s: float) -> None:
        """Take note of the round that is played; the first begins the time of all faults."""
        if round_no >= 1 and self._began_s == math.inf:
            self._began_s = now_s
        self._round_no = round_no

    # -- what it asks ------------------------------------------------------------------------------

    def ways(self, key: bytes, now_s: float) -> tuple[Way, Way]:
        other = self._names.get(key)
        if other is None or not self._of_ways:
            return CALM, CALM
        on = [fault for fault in self._of_ways if self._is_on(fault, now_s)]
        return _way(on, self._me, other), _way(on, other, self._me)

    def slowness(self, now_s: float) -> float:
        """How many times longer training takes, >= 1."""
        return math.prod(fault.factor for fault in self._slow if self._is_on(fault, now_s))

    def _is_on(self, fault: Fault, now_s: float) -> bool:
        if fault.span.in_rounds:
            return fault.span.has_round(self._round_no)
        return fault.span.has_instant(now_s - self._began_s)


def _way(faults: Iterable[Fault], sender: str, receiver: str) -> Way:
    """All that is in force in one direction, together."""
    acting = [fault for fault in faults if fault.carries(sender, receiver)]
    if not acting:
        return CALM

    def of(kind: Kind) -> list[Fault]:
        return [fault for fault in acting if fault.kind is kind]

    def share(kind: Kind) -> float:
        return 1.0 - math.prod(1.0 - fault.rate for fault in of(kind))

    return Way(
        is_cut=bool(of(Kind.PARTITION)),
        loss=share(Kind.LOSS),
        corrupt=share(Kind.CORRUPT),
        delay_s=sum(fault.seconds for fault in of(Kind.DELAY)),
        jitter_s=sum(fault.seconds for fault in of(Kind.JITTER)),
        mbit=min((fault.mbit for fault in of(Kind.BANDWIDTH)), default=math.inf),
    )

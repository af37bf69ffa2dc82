"""One COLLECT: when it may be closed, and what comes of it. Formulas over neighbours; no state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from peer.neighbour import Neighbour
from peer.pace import Pace, freshness, longest
from peer.work import Input
from protocol.ids import PeerId

__all__ = [
    "Verdict",
    "Yield",
    "doubt",
    "jump_target",
    "longest_s",
    "sort_out",
    "verdict",
]

CATCH_UP_ROUNDS = 2  # behind the median by this many rounds: jump


@dataclass(frozen=True, slots=True)
class Verdict:
    """Close now, or look again at an instant."""

    closed: bool
    look_again_s: float = math.inf


def verdict(
    pending: Sequence[Neighbour],
    got: int,
    *,
    began_s: float,
    longest_s: float,
    pace: Pace,
    now_s: float,
    ahead: int = 0,
) -> Verdict:
    """May this COLLECT be closed?

    Args:
        pending: who is still waited for.
        got: how many of those waited for are settled.
        began_s: when it began.
        longest_s: longest round that this peer has seen or been told of.
        pace: how long to wait.
        now_s: the instant.
        ahead: rounds that this peer has sat out: the others may have as many still to play.
    """
    if not pending:
        return Verdict(closed=True)
    bound_s = began_s + pace.bound(longest_s) * (1 + ahead)
    if now_s >= bound_s:
        return Verdict(closed=True)
    if pace.quorum >= 1.0:
        return Verdict(closed=False, look_again_s=bound_s)  # all: only the bound ends the wait
    silent_s = {n.name: n.silent_s(began_s, pace) for n in pending}
    living = [n for n in pending if not n.lost and now_s < silent_s[n.name]]
    if got < math.ceil(pace.quorum * (got + len(living))):
        return Verdict(closed=False, look_again_s=min(bound_s, *(silent_s[n.name] for n in living)))
    due_s = min(bound_s, max(n.give_up_s(began_s, pace, ahead=ahead) for n in pending))
    return Verdict(closed=now_s >= due_s, look_again_s=due_s)


def longest_s(asked: Sequence[Neighbour], work_s: float) -> float:
    """The longest round to reckon with, in seconds: seen here, or told within bounds."""
    return longest(_seen_s(asked, work_s), max((n.told_s for n in asked), default=0.0))


def doubt(
    given_up: Sequence[Neighbour],
    asked: Sequence[Neighbour],
    work_s: float,
    waited_s: float,
    pace: Pace,
) -> None:
    """Believe those no more whose word has held this round up in vain.

    Args:
        given_up: changed in place.
        asked: in this round.
        work_s: the longest from the end of a COLLECT to a result here, in seconds.
        waited_s: for those who were given up, in seconds.
        pace: how long to wait.
    """
    seen_s = _seen_s(asked, work_s)
    if waited_s > pace.bound(seen_s):
        for neighbour in given_up:
            neighbour.broke_word |= pace.is_stretched_by(neighbour.told_s, seen_s)


def _seen_s(asked: Sequence[Neighbour], work_s: float) -> float:
    """The longest round that was seen here, whatever the neighbours say, in seconds."""
    return max([work_s, *(n.arrivals.mean_s for n in asked if n.arrivals is not None)])


def jump_target(asked: Sequence[Neighbour], wanted: int) -> int:
    """The median round of what is newer than `wanted` by two rounds or more; 0 if it is not."""
    fresh = [n.good.round_no for n in asked if n.good is not None and n.good.round_no >= wanted]
    if not fresh or median_low(fresh) - wanted < CATCH_UP_ROUNDS:
        return 0
    return median_low(fresh)


@dataclass(frozen=True, slots=True)
class Yield:
    """What a COLLECT came to: fresh, stale with its age, or nothing."""

    inputs: tuple[Input, ...] = ()  # sorted by sender
    used: Mapping[PeerId, int] = field(default_factory=dict)  # neighbour -> round of what it sent
    stale: Mapping[PeerId, int] = field(default_factory=dict)  # neighbour -> age in rounds
    missing: tuple[PeerId, ...] = ()


def sort_out(asked: Sequence[Neighbour], wanted: int, pace: Pace) -> Yield:
    """Decide what is mixed; `asked` is sorted by name."""
    inputs: list[Input] = []
    used: dict[PeerId, int] = {}
    stale: dict[PeerId, int] = {}
    missing: list[PeerId] = []
    for neighbour in asked:
        held = neighbour.good
        age = wanted - held.round_no if held is not None else 0
        if held is None or age > pace.max_staleness:
            missing.append(neighbour.name)
            continue
        if age <= 0:
            used[neighbour.name] = held.round_no
        else:
            stale[neighbour.name] = age
        inputs.append(Input(held.snapshot, freshness(age, pace.half_life)))
    return Yield(tuple(inputs), used, stale, tuple(missing))

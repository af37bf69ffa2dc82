"""How a run came through its faults: read back from its directory, summed up as `survival.json`.

Reads what peers have left, of a launch or a simulation; draws nothing.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from peer.data.archive import replacing
from peer.faults.plan import FaultPlan
from peer.faults.table import Fault, Kind, with_ends
from peer.ledger import EVENTS, Event, read_events
from protocol.errors import DataError

__all__ = ["Missed", "Played", "Survival", "Survivor", "Window", "survival_of", "write_survival"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """One neighbour that took no fresh part in one round of a peer."""

    round_no: int
    neighbour: str
    why: str  # the plan's word, the reason of a refusal, or that it was not in time
    age: int  # of its last-known-good result, which stood in for it, in rounds; 0: nothing did


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One round of a peer. Instants are in seconds since the first peer began round 1."""

    round_no: int
    begin_s: float
    end_s: float
    waited_s: float
    num_fresh: int  # neighbours
    missed: tuple[Missed, ...]
    accuracy: float | None  # of the model that the peer serves, on its own test split


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One fault: when it was in force, and the mean accuracy of the peers around it.

    Rounds, or seconds since the first peer began round 1; `end` None: to the end of the run.
    Accuracies are means over the peers that have rounds of all the kinds named: `before` is that
    of the last round before it, `during` the mean of the rounds in it, `after` that of the peer's
    last round, where that lies after it. None where there is no such round.
    """

    number: int
    kind: str
    what: str
    unit: str  # rounds, seconds
    begin: float
    end: float | None
    before: float | None = None
    during: float | None = None
    after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """What one peer went through."""

    name: str
    finished: str  # the reason that it gave; empty: it gave none
    starts: int  # of its process: 1, and one more for each time that it was started again
    rounds_finished: int
    rounds_degraded: int
    sat_out: tuple[int, ...]  # rounds, because the faults said so
    skipped: tuple[int, ...]  # rounds, to catch up
    waited_s: float  # for neighbours, over all rounds
    lost_s: float  # of that, in rounds in which somebody was missing
    played_s: float  # all rounds
    stale: Mapping[int, int]  # age in rounds -> how often a result of that age stood in
    nothing: int  # how often nothing stood in
    pulled_bytes: int
    rounds: tuple[Played, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    run: str
    seed: int
    rounds: int
    windows: tuple[Window, ...]
    peers: tuple[Survivor, ...]

    @property
    def in_seconds(self) -> bool:
        """Some fault was given in seconds: a picture has to show time."""
        return any(window.unit == "seconds" for window in self.windows)


def survival_of(
    directory: Path, faults: Sequence[Fault], *, run: str, seed: int, rounds: int
) -> Survival:
    """Read what the peers of a run have left.

    Raises:
        DataError: a file of it is torn, or no peer has started there.
    """
    told = {path.parent.name: read_events(path) for path in sorted(directory.glob(f"*/{EVENTS}"))}
    told = {name: events for name, events in told.items() if _is_peer(events)}
    if not told:
        raise DataError(f"{directory} is not a run directory: no peer has started in it")
    began_s = min((begin for events in told.values() for begin in _begins(events)), default=0.0)
    plan = FaultPlan(faults, seed=seed)
    peers = tuple(
        _survivor(name, events, began_s, [r for r in range(1, rounds + 1) if plan.absence(name, r)])
        for name, events in told.items()
    )
    windows = tuple(_window(fault, peers) for fault in with_ends(faults) if _lasts(fault))
    return Survival(run=run, seed=seed, rounds=rounds, windows=windows, peers=peers)


def write_survival(path: Path, survival: Survival) -> None:
    """Write it whole or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(json.dumps(asdict(survival), indent=1).encode() + b"\n")


# -- one peer -----------------------------------------------------------------------------------


def _is_peer(events: Sequence[Event]) -> bool:
    started = next((event for event in events if event.name == "started"), None)
    return started is not None and started.fields.get("role", "peer") == "peer"


def _begins(events: Sequence[Event]) -> Iterable[float]:
    for event in events:
        if event.name == "round" and event.fields.get("round") == 1:
            yield event.at_s - _number(event, "round_s")


def _survivor(
    name: str, events: Sequence[Event], began_s: float, sat_out: Sequence[int]
) -> Survivor:
    records = {_whole(event, "round"): event for event in events if event.name == "round"}
    played = tuple(_played(event, began_s) for _, event in sorted(records.items()))
    missed = [one for play in played for one in play.missed]
    skipped = {n for event in records.values() for n in _list(event, "skipped")}
    finished = [event for event in events if event.name == "finished"]
    return Survivor(
        name=name,
        finished=str(finished[-1].fields.get("reason", "")) if finished else "",
        starts=sum(event.name == "started" for event in events),
        rounds_finished=len(played),
        rounds_degraded=sum(event.fields.get("degraded") is True for event in records.values()),
        sat_out=tuple(number for number in sat_out if number not in records),
        skipped=tuple(sorted(skipped - set(sat_out))),
        waited_s=_rounded(sum(play.waited_s for play in played)),
        lost_s=_rounded(sum(play.waited_s for play in played if play.missed)),
        played_s=_rounded(sum(play.end_s - play.begin_s for play in played)),
        stale=dict(sorted(Counter(one.age for one in missed if one.age).items())),
        nothing=sum(not one.age for one in missed),
        pulled_bytes=sum(int(_number(event, "pulled_bytes")) for event in records.values()),
        rounds=played,
    )


def _played(event: Event, began_s: float) -> Played:
    number = _whole(event, "round")
    cut, refused, stale = (_table(event, key) for key in ("cut", "refused", "stale"))
    missing = _list(event, "missing")
    names = sorted({*cut, *stale, *map(str, missing), *(n for n in refused if n in stale)})
    used = _table(event, "used")
    missed = tuple(
        Missed(
            round_no=number,
            neighbour=name,
            why=str(cut.get(name) or refused.get(name) or "not in time"),
            age=int(stale.get(name, 0)),
        )
        for name in names
        if name not in used
    )
    own = event.fields.get("own")
    accuracy = own.get("test_accuracy") if isinstance(own, Mapping) else None
    return Played(
        round_no=number,
        begin_s=_rounded(event.at_s - _number(event, "round_s") - began_s),
        end_s=_rounded(event.at_s - began_s),
        waited_s=_number(event, "waited_s"),
        num_fresh=len(used),
        missed=missed,
        accuracy=accuracy if isinstance(accuracy, float | int) else None,
    )


# -- one fault ----------------------------------------------------------------------------------


def _lasts(fault: Fault) -> bool:
    """A heal, a restart and the like are the ends of others."""
    ends = {Kind.HEAL, Kind.RESTART, Kind.COORDINATOR_UP, Kind.RELAY_UP}
    return fault.kind not in ends


def _window(fault: Fault, peers: Sequence[Survivor]) -> Window:
    span = fault.span
    begin = float(span.at_round if span.at_round is not None else span.at_s or 0.0)
    end = span.until_round if span.in_rounds else span.until_s
    window = Window(
        number=fault.number,
        kind=str(fault.kind),
        what=str(fault),
        unit="rounds" if span.in_rounds else "seconds",
        begin=begin,
        end=float(end) if end is not None else None,
    )
    phases = [_phases(window, peer.rounds) for peer in peers]
    return replace(
        window,
        before=_mean(phase["before"] for phase in phases),
        during=_mean(phase["during"] for phase in phases),
        after=_mean(phase["after"] for phase in phases),
    )


def _phases(window: Window, played: Sequence[Played]) -> Mapping[str, float | None]:
    end = math.inf if window.end is None else window.end
    by_phase: dict[str, list[float]] = {"before": [], "during": [], "after": []}
    for play in played:
        in_rounds = window.unit == "rounds"
        first, last = (play.round_no,) * 2 if in_rounds else (play.begin_s, play.end_s)
        is_after = first >= end
        is_before = last < window.begin
        phase = "after" if is_after else "before" if is_before else "during"
        if play.accuracy is not None:
            by_phase[phase].append(play.accuracy)
    return {
        "before": by_phase["before"][-1] if by_phase["before"] else None,
        "during": _mean(by_phase["during"]),
        "after": by_phase["after"][-1] if by_phase["after"] else None,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# -- fields of events ---------------------------------------------------------------------------


def _number(event: Event, key: str) -> float:
    value = event.fields.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def _whole(event: Event, key: str) -> int:
    return int(_number(event, key))


def _table(event: Event, key: str) -> Mapping[str, Any]:
    value = event.fields.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(event: Event, key: str) -> Sequence[Any]:
    value = event.fields.get(key)
    return value if isinstance(value, list | tuple) else ()


def _rounded(seconds: float) -> float:
    return round(seconds, 4)

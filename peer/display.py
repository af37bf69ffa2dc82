"""What a person sees of one running peer: a line for each round, and what it is doing now.

Three ways: a live status under the lines on a terminal, plain lines elsewhere, JSON for machines.
Knows no socket and decides nothing; all text for people goes to stderr.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO, cast

from rich.console import Console
from rich.status import Status

from peer.record import RoundRecord
from peer.work import Score

__all__ = [
    "Display",
    "JsonDisplay",
    "LineDisplay",
    "Now",
    "Silence",
    "Waiting",
    "now_text",
    "round_text",
]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One neighbour that a round waits for, and what it says that it is doing."""

    name: str
    phase: str = ""  # empty: it says nothing
    fraction: float = 0.0
    eta_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What a peer is doing at this instant."""

    phase: str
    round_no: int
    rounds: int
    fraction: float
    asked: int = 0
    waiting_for: Sequence[Waiting] = ()


class Display(Protocol):
    def line(self, text: str) -> None:
        """Something happened that a person should see."""

    def event(self, line: str) -> None:
        """One line of events.jsonl, as it was written."""

    def round(self, record: RoundRecord, rounds: int) -> None: ...

    def now(self, now: Now) -> None:
        """May be called often; shown as often as is of use."""

    def close(self) -> None: ...


def now_text(now: Now) -> str:
    """One line: "round 3 of 40: waiting for 1 of 5: p3, training 60 %, about 35 s"."""
    where = f"round {now.round_no} of {now.rounds}: " if now.round_no else ""
    if now.phase == "collect" and now.waiting_for:
        them = "; ".join(_waiting_text(w) for w in now.waiting_for[:3])
        more = f" and {len(now.waiting_for) - 3} more" if len(now.waiting_for) > 3 else ""
        return f"{where}waiting for {len(now.waiting_for)} of {now.asked}: {them}{more}"
    doing = _DOING.get(now.phase, now.phase)
    return f"{where}{doing} {now.fraction:.0%}" if now.fraction > 0.0 else f"{where}{doing}"


_DOING = {
    "join": "waiting for the coordinator's answer",
    "prepare": "loading torch, the data and the model",
    "lobby": "waiting in the lobby",
    "collect": "pulling",
    "mix": "mixing",
    "train": "training",
    "evaluate": "evaluating",
    "publish": "publishing",
    "drain": "serving those who are behind",
    "left": "leaving",
    "alone": "training alone, for comparison",
}


def _waiting_text(waiting: Waiting) -> str:
    parts = [waiting.name]
    if not waiting.phase:
        parts.append("no word yet")
    else:
        doing = _DOING.get(waiting.phase, waiting.phase)
        parts.append(f"{doing} {waiting.fraction:.0%}" if waiting.fraction > 0.0 else doing)
    if waiting.eta_s > 0.5:
        parts.append(f"about {waiting.eta_s:.0f} s")
    return ", ".join(parts)


def round_text(record: RoundRecord, rounds: int) -> str:
    """One line for a finished round."""
    width = len(str(rounds))
    asked = len(record.used) + len(record.stale) + len(record.missing)
    if record.trained is None:  # a relay
        learnt = [f"aggregated {len(record.used)} of {asked}"]
    else:
        learnt = [
            f"mixed {_percent(record.mixed)}",
            f"trained {_percent(record.trained)}",
            f"loss {record.train_loss:.3f}",
            f"{len(record.used)} of {asked} fresh" if asked else _alone(record.round_no),
        ]
    parts = [f"round {record.round_no:>{width}}/{rounds}", *learnt, f"{record.round_s:.1f} s"]
    if record.stale:
        parts.append("stale: " + ", ".join(f"{n} by {age}" for n, age in record.stale.items()))
    if record.missing:
        parts.append("missing: " + ", ".join(record.missing))
    if record.refused:
        parts.append("refused: " + ", ".join(f"{n} ({r})" for n, r in record.refused.items()))
    if record.skipped:
        parts.append(f"skipped {record.skipped[0]} to {record.skipped[-1]}")
    return "  ".join(parts)


def _alone(round_no: int) -> str:
    return "from the common start" if round_no == 1 else "with nobody"


def _percent(score: Score | None) -> str:
    if score is None or score.test_accuracy < 0.0:
        return "     -"
    return f"{score.test_accuracy:6.1%}"


class _Lasting:
    """A stream whose reader may go away: that ends the showing, not the run."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            return self._file.write(text)
        except OSError:
            self._mute()
            return len(text)

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError:
            self._mute()

    def isatty(self) -> bool:
        return self._file.isatty()

    def _mute(self) -> None:
        """Let what is written from now on vanish, and what is still held back as well."""
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device
            os.dup2(nowhere.fileno(), self._file.fileno())


class LineDisplay:
    """For people: a line for each round; on a terminal also a live status beneath."""

    def __init__(self, file: TextIO | None = None) -> None:
        lasting = cast("TextIO", _Lasting(file or sys.stderr))
        self._console = Console(file=lasting, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        if self._console.is_terminal:
            self._status = self._console.status("starting", spinner="dots")
            self._status.start()

    def line(self, text: str) -> None:
        self._console.print(text, markup=False)

    def event(self, line: str) -> None:
        pass  # for machines

    def round(self, record: RoundRecord, rounds: int) -> None:
        style = "yellow" if record.degraded or record.skipped else None
        self._console.print(round_text(record, rounds), style=style, markup=False)

    def now(self, now: Now) -> None:
        if self._status is not None:
            self._status.update(now_text(now).replace("[", "\\["))

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()


class JsonDisplay:
    """For machines: the lines of events.jsonl on stdout, and progress between them."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = _Lasting(file or sys.stdout)
        self._for_people = _Lasting(sys.stderr)
        self._last: Now | None = None

    def line(self, text: str) -> None:
        print(text, file=self._for_people, flush=True)

    def event(self, line: str) -> None:
        print(line, file=self._file, flush=True)

    def round(self, record: RoundRecord, rounds: int) -> None:
        pass  # its event says it all

    def now(self, now: Now) -> None:
        if now == self._last:
            return
        self._last = now
        eta_s = max((w.eta_s for w in now.waiting_for), default=0.0)
        fields = {
            "event": "progress",
            "phase": now.phase,
            "round": now.round_no,
            "fraction": round(now.fraction, 3),
            "waiting_for": [w.name for w in now.waiting_for],
            "eta_s": round(eta_s, 1),
        }
        self.event(json.dumps(fields))

    def close(self) -> None:
        pass


class Silence:
    """For many peers at once: their run directories have it all."""

    def line(self, text: str) -> None:
        pass

    def event(self, line: str) -> None:
        pass

    def round(self, record: RoundRecord, rounds: int) -> None:
        pass

    def now(self, now: Now) -> None:
        pass

    def close(self) -> None:
        pass

"""What one peer writes of its run: events.jsonl, influence.npz, summary.json. Decides nothing.

A full disk never ends a run: it is told once, events wait in memory until there is room again, and
the other two files are written whole or not at all.
"""

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from peer.durable import Appender
from peer.influence import tabulate, write_influence
from peer.record import RoundRecord
from peer.summary import PeerSummary, write_summary
from peer.work import Score
from protocol.clock import wall_s
from protocol.errors import ConfigError, DataError
from protocol.jsontext import parse_json

__all__ = ["EVENTS", "INFLUENCE", "SUMMARY", "Event", "Ledger", "read_events"]

EVENTS, INFLUENCE, SUMMARY = "events.jsonl", "influence.npz", "summary.json"

VERSION = 1  # of the events' schema: docs/design.md
MAX_LINE_BYTES = 16 << 20  # of one event in a file that is read
GROWTH = 50  # influence.npz is rewritten when it has grown by one in so many rounds

_log = logging.getLogger(__name__)


class Ledger:
    """Writes a peer's run directory; open it in a `with`.

    `tell` is given one line when the disk stops taking what is written, and one when it does again.
    """

    def __init__(
        self,
        directory: Path,
        *,
        tell: Callable[[str], None] = _log.warning,
        clock_s: Callable[[], float] = wall_s,
        records: Sequence[RoundRecord] = (),
        sync: bool = True,
    ) -> None:
        """Open the files.

        Args:
            directory: of the peer, made where it is not there.
            tell: hears of a disk that takes nothing more.
            clock_s: seconds since 1970.
            records: of the rounds that an earlier process finished. What the files lack of them
                is written now.
            sync: have influence.npz follow the rounds, and files on the disk before it goes on.
                Without, influence.npz comes at the end, whatever ends this peer.

        Raises:
            ConfigError: the directory cannot be written.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._events = Appender(directory / EVENTS)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"run directory {directory} cannot be written: {reason}") from None
        self._directory = directory
        self._tell, self._clock_s, self._sync = tell, clock_s, sync
        self._records: list[RoundRecord] = []
        self._tabulated = 0  # records in influence.npz
        self._trouble: set[str] = set()  # files that could not be written the last time
        if records:
            self._catch_up(records)

    def _catch_up(self, records: Sequence[RoundRecord]) -> None:
        told = {
            (event.fields.get("round"), event.fields.get("digest"))
            for event in read_events(self._directory / EVENTS)
            if event.name == "round"
        }
        for record in records:
            self._records.append(record)
            if (record.round_no, record.digest) not in told:
                self.event("round", **_round_fields(record))
        self._tabulate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """Those written so far, in order."""
        return tuple(self._records)

    def event(self, name: str, /, **fields: object) -> str:
        """Write one event of `fields`: what JSON can hold; a number that is not finite is null.

        Returns:
            The line, without its end: what `--json` shows.
        """
        whole = {"v": VERSION, "at_s": round(self._clock_s(), 3), "event": name, **fields}
        line = json.dumps(_plain(whole), allow_nan=False)
        self._attempt(EVENTS, lambda: self._events.append(line.encode() + b"\n"))
        return line

    def round(self, record: RoundRecord) -> str:
        """Write a round's event, and its weights into influence.npz; returns as `event` does."""
        line = self.event("round", **_round_fields(record))
        self._records.append(record)
        new = len(self._records) - self._tabulated
        if self._sync and new * GROWTH >= len(self._records):
            self._tabulate()
        return line

    def summary(self, summary: PeerSummary) -> None:
        """Write summary.json, and what influence.npz still lacks."""
        self._tabulate()
        path = self._directory / SUMMARY
        self._attempt(SUMMARY, lambda: write_summary(path, summary, sync=self._sync))

    def abandon(self) -> None:
        """Let go of the files, whatever was still to be written."""
        if not self._sync:
            self._tabulate()
        self._events.close()

    def close(self) -> None:
        self._tabulate()
        self._attempt(EVENTS, lambda: self._events.append(b""))
        self._events.close()

    def _tabulate(self) -> None:
        if self._tabulated == len(self._records):
            return
        influence, path = tabulate(self._records), self._directory / INFLUENCE
        if self._attempt(INFLUENCE, lambda: write_influence(path, influence, sync=self._sync)):
            self._tabulated = len(self._records)

    def _attempt(self, name: str, write: Callable[[], None]) -> bool:
        try:
            write()
        except (OSError, DataError) as error:
            if not self._trouble:
                reason = getattr(error, "strerror", None) or error
                self._tell(f"the run goes on, but {self._directory / name} is behind: {reason}")
            self._trouble.add(name)
            return False
        if name in self._trouble:
            self._trouble.remove(name)
            if not self._trouble:
                lost = (
                    f", {self._events.num_lost} events were lost" if self._events.num_lost else ""
                )
                self._tell(f"{self._directory} is written again{lost}")
        return True


def _round_fields(record: RoundRecord) -> Mapping[str, object]:
    return {
        "round": record.round_no,
        "used": record.used,
        "stale": record.stale,
        "missing": record.missing,
        "refused": record.refused,
        "cut": record.cut,
        "skipped": record.skipped,
        "degraded": record.degraded,
        "waited_s": round(record.waited_s, 4),
        "mix_s": round(record.mix_s, 4),
        "train_s": round(record.train_s, 4),
        "twin_s": round(record.twin_s, 4),
        "round_s": round(record.round_s, 4),
        "num_steps": record.num_steps,
        "train_loss": record.train_loss,
        "epsilon": record.epsilon,
        "mixed": _score(record.mixed),
        "trained": _score(record.trained),
        "own": _score(record.own),
        "served": record.served,
        "twin": _score(record.twin),
        "candidates": [asdict(candidate) for candidate in record.candidates],
        "client_weight": {
            weights.sender: weights.client_weight
            for weights in record.weights
            if weights.client_weight >= 0.0
        },
        "notes": record.notes,
        "groups": {group.name: {n.name: n.value for n in group.notes} for group in record.groups},
        "pulled_bytes": record.pulled_bytes,
        "pulled": record.pulled,
        "sent": record.sent,
        "digest": record.digest,
        "tensors": record.tensors,
    }


def _score(score: Score | None) -> Mapping[str, float | None] | None:
    """Name the four numbers; those of an empty split are null."""
    if score is None:
        return None
    has_val, has_test = score.val_accuracy >= 0.0, score.test_accuracy >= 0.0
    return {
        "val_accuracy": score.val_accuracy if has_val else None,
        "val_loss": score.val_loss if has_val else None,
        "test_accuracy": score.test_accuracy if has_test else None,
        "test_loss": score.test_loss if has_test else None,
    }


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Event:
    """One line of events.jsonl."""

    name: str
    at_s: float  # since 1970
    fields: Mapping[str, object]


def read_events(path: Path) -> tuple[Event, ...]:
    """Read a peer's events; a last line that a crash has torn is left out.

    Raises:
        DataError: no such file, or a line that is not an event of a version that is known.
    """
    try:
        with path.open("rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    return tuple(_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1))


def _parse(line: bytes, where: str) -> Event:
    try:
        raw = parse_json(line) if len(line) <= MAX_LINE_BYTES else None
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        raise DataError(f"{where}, is not a JSON object: {line[:60]!r}")
    version, at_s, name = (raw.pop(key, None) for key in ("v", "at_s", "event"))
    if version != VERSION:
        raise DataError(f"{where}, has version {version!r}, this Kinfolk reads {VERSION}")
    if type(at_s) not in (int, float) or not isinstance(name, str):
        raise DataError(f"{where}, is not an event: {line[:60]!r}")
    return Event(name, float(at_s), raw)

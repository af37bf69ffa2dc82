"""Keys that this peer refuses for what they sent: kept over a restart, until its person lifts one.

    state/refused.json      one object for each, in a file that a person can read and remove

The transport shuts a key out at once and knows no file; this remembers it. No torch, no socket.
"""

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import localtime, strftime

from peer.durable import write_whole
from peer.effects import Happened
from peer.layout import refusals_file
from protocol.errors import ConfigError
from protocol.ids import PeerId
from protocol.jsontext import parse_json

__all__ = ["Refusal", "Refusals"]

_log = logging.getLogger(__name__)

MAX_FILE_BYTES = 4 << 20  # 2,048 members and room
KEY_BYTES = 32
MAX_AT_S = 4e9  # in the year 2096


@dataclass(frozen=True, slots=True)
class Refusal:
    peer: PeerId
    key: bytes  # CURVE, 32 bytes
    reason: str
    at_s: float  # seconds since 1970


class Refusals:
    """Those of one run directory; one thread's."""

    def __init__(
        self,
        *,
        refuse: Callable[[Iterable[bytes]], None],
        tell: Callable[[Happened], None],
    ) -> None:
        """Begin with none.

        Args:
            refuse: has the server hear these keys no more.
            tell: the person, and the run directory.
        """
        self._refuse = refuse
        self._tell = tell
        self._path: Path | None = None
        self._known: dict[bytes, Refusal] = {}  # by key

    def open(self, directory: Path) -> None:
        """Refuse whom an earlier process did, and keep them in this run directory from now on.

        Raises:
            ConfigError: the file cannot be read, or is not whole: it is not guessed at.
        """
        self._path = path = refusals_file(directory)
        kept = _read(path)
        self._refuse(refusal.key for refusal in kept)
        for refusal in kept:
            since = strftime("%Y-%m-%d %H:%M", localtime(refusal.at_s))
            lift = f"to take it again, stop this peer and remove {path}"
            self._happened(refusal, f"since {since}: {refusal.reason}; {lift}")
        early = [it for it in self._known.values() if it.key not in {it.key for it in kept}]
        self._known = {refusal.key: refusal for refusal in (*kept, *early)}
        if early:
            self._write(path)

    def add(self, refusal: Refusal) -> None:
        """Refuse one from now on, also after a restart, as far as the disk lets us."""
        _log.warning("peer=%s is refused from now on: %s", refusal.peer, refusal.reason)
        self._known.setdefault(refusal.key, refusal)
        self._refuse((refusal.key,))
        trouble = self._write(self._path) if self._path is not None else ""
        until = f"until a restart: {trouble}" if trouble else "after a restart too"
        self._happened(refusal, f"{refusal.reason}; {until}")

    def _write(self, path: Path) -> str:
        """Write all of them; why they are in memory alone, or nothing."""
        listed = [asdict(known) | {"key": known.key.hex()} for known in self._known.values()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(listed, indent=1).encode() + b"\n")
        except OSError as error:
            return f"{path} cannot be written, {error.strerror or error}"
        return ""

    def _happened(self, refusal: Refusal, reason: str) -> None:
        self._tell(Happened("shut-out", refusal.peer, reason))


def _read(path: Path) -> tuple[Refusal, ...]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"over {MAX_FILE_BYTES} bytes")
        return _refusals(parse_json(content))
    except ValueError as error:
        raise ConfigError(
            f"{path} is not whole ({error}), and says who is refused here",
            hint="mend it, or remove it to hear all members again",
        ) from None


def _refusals(listed: object) -> tuple[Refusal, ...]:
    match listed:
        case [*items]:
            return tuple(map(_refusal, items))
        case _:
            raise ValueError("it holds no list")


def _refusal(item: object) -> Refusal:
    match item:
        case {
            "peer": str(peer),
            "key": str(key),
            "reason": str(reason),
            "at_s": int() | float() as at,
        }:
            raw, at_s = bytes.fromhex(key), float(at)
        case _:
            raise ValueError(f"{str(item)[:40]} is no refusal")
    if len(raw) != KEY_BYTES:
        raise ValueError(f"a key of {len(raw)} bytes, must be of {KEY_BYTES}")
    if not 0.0 <= at_s <= MAX_AT_S:
        raise ValueError(f"at_s is {at_s}, must be in [0, {MAX_AT_S:.0f}]")
    return Refusal(PeerId(peer), raw, reason, at_s)

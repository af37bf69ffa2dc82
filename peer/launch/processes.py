"""Processes that were started together, and that end together whatever happens.

One thread reads them all. A process and what it starts are one process group: when the process has
ended, what is left of its group is killed. When the launcher itself is killed, the kernel tells
each process (tether.py).
"""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Self, TypeAlias

from peer.launch import tether
from protocol.clock import Clock
from protocol.errors import ConfigError

__all__ = ["Command", "Ended", "Happening", "Line", "Processes", "Signals"]

POLL_S = 0.1  # how late an exit without a last line may be seen
MAX_LINE_BYTES = 1 << 20  # longer ones are cut into pieces
_CHUNK_BYTES = 1 << 16
_CHUNKS = 64  # read from one pipe before the others get their turn; more than a pipe holds


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    argv: Sequence[str]  # the program as a path
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """What a process said, without its end; on standard error where `is_error`."""

    name: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """All that a process said has been handed over; a code below 0 is the signal that killed it."""

    name: str
    code: int


Happening: TypeAlias = Line | Ended


class Signals:
    """Counts SIGINT, SIGTERM and SIGHUP while open, instead of dying of them."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    asked: bool = False  # to end
    torn: dict[IO[bytes], bytes] = field(default_factory=dict)  # pipe -> its unfinished line


class Processes:
    """Starts, hears and ends; open it in a `with`, from the main thread alone."""

    def __init__(self, clock: Clock, signals: Signals, *, grace_s: float) -> None:
        """Prepare.

        Args:
            clock: for deadlines.
            signals: from the second on, nothing more is waited for.
            grace_s: between asking a process to end and killing it.
        """
        self._clock, self._signals, self._grace_s = clock, signals, grace_s
        self._children: dict[str, _Child] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for _said in self.end():
                pass
        finally:
            self._selector.close()

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._children)

    def start(self, command: Command) -> None:
        """Start one process.

        Raises:
            ConfigError: the system refuses.
        """
        argv = [sys.executable, "-I", "-S", str(Path(tether.__file__)), str(os.getpid())]
        try:
            process = subprocess.Popen(  # noqa: S603 - a command of our own, no shell
                [*argv, *command.argv],
                env=dict(command.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(
                f"{command.name} cannot be started: {error.strerror or error}"
            ) from None
        child = self._children[command.name] = _Child(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                child.torn[pipe] = b""
                self._selector.register(pipe, selectors.EVENT_READ, command.name)

    def poll(self, timeout_s: float) -> list[Happening]:
        """Hand over what has happened; wait for it, at most so long.

        Args:
            timeout_s: >= 0.
        """
        happenings: list[Happening] = []
        until_s = self._clock.now_s() + timeout_s
        while not happenings:
            left_s = max(0.0, until_s - self._clock.now_s())
            for key, _ in self._selector.select(min(left_s, POLL_S)):
                pipe: IO[bytes] = key.fileobj  # type: ignore[assignment] # registered in `start`
                happenings += self._read(key.data, pipe)
            for name in list(self._children):
                happenings += self._reap(name)
            if self._clock.now_s() >= until_s:
                break
        return happenings

    def stop(self, *names: str) -> None:
        """Ask processes to end; nobody is asked twice, as that would be an order to hurry."""
        for name in names:
            child = self._children.get(name)
            if child is not None and not child.asked:
                child.asked = True
                child.process.terminate()
                self.send(name, signal.SIGCONT)  # who is frozen hears nothing

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process and all that it has started; nothing if it does not run."""
        child = self._children.get(name)
        if child is not None:
            with suppress(ProcessLookupError):
                os.killpg(child.process.pid, number)

    def end(self) -> Iterator[Happening]:
        """Ask all to end, hand over their last lines, and kill those that do not end in time."""
        self.stop(*self._children)
        until_s = self._clock.now_s() + self._grace_s
        while self._children and self._clock.now_s() < until_s:
            yield from self.poll(POLL_S)
            if len(self._signals.received) > 1:
                break
        for child in self._children.values():
            _kill_group(child.process.pid)
        while self._children:
            yield from self.poll(POLL_S)

    def _reap(self, name: str) -> list[Happening]:
        """Bury a process that has ended, with its group and the last of its lines.

        The process is waited for only after its group was killed: until then its number cannot be
        another's.
        """
        child = self._children[name]
        pid = child.process.pid
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return []
        _kill_group(pid)
        happenings: list[Happening] = []
        for pipe in list(child.torn):
            happenings += self._read(name, pipe)
            happenings += self._finish(name, pipe)
        del self._children[name]
        return [*happenings, Ended(name, child.process.wait())]

    def _read(self, name: str, pipe: IO[bytes]) -> list[Happening]:
        """Take what is in a pipe now, but no end of it."""
        child = self._children[name]
        if pipe not in child.torn:
            return []
        text = child.torn[pipe]
        happenings: list[Happening] = []
        for _ in range(_CHUNKS):
            try:
                chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                child.torn[pipe] = text
                return [*happenings, *self._finish(name, pipe)]
            *lines, text = (text + chunk).split(b"\n")
            if len(text) > MAX_LINE_BYTES:
                lines.append(text)
                text = b""
            happenings += [self._line(name, line, pipe) for line in lines]
        child.torn[pipe] = text
        return happenings

    def _finish(self, name: str, pipe: IO[bytes]) -> list[Happening]:
        child = self._children[name]
        if pipe not in child.torn:
            return []
        text = child.torn.pop(pipe)
        self._selector.unregister(pipe)
        line = [self._line(name, text, pipe)] if text else []
        pipe.close()
        return [*line]

    def _line(self, name: str, line: bytes, pipe: IO[bytes]) -> Line:
        text = line.decode(errors="replace").rstrip("\r")
        return Line(name, text, is_error=pipe is self._children[name].process.stderr)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of zombies
        os.killpg(leader, signal.SIGKILL)

"""The trainer as a child process: started, listened to, and ended, whatever happens."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from peer.pipe import Pipe
from peer.work import Command, Quit, Reply

__all__ = ["NOT_FOR_IT", "TrainerProcess", "blocked"]

NOT_FOR_IT = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
QUIT_S = 5.0  # for a trainer to end by itself, before it is ended
TAIL_BYTES = 4096  # of the log, for its last words
TAIL_LINES = 3


class TrainerProcess:
    def __init__(self, log: Path, *, threads: int | None = None) -> None:
        """Start it at once: it takes seconds to load torch, and the node has other things to do.

        Args:
            log: takes what the process prints.
            threads: that it computes with; None leaves it to torch.

        Raises:
            OSError: it cannot be started, or the log cannot be written.
        """
        self._log = log
        self.pipe, theirs = Pipe.pair()
        with theirs, log.open("ab") as file, blocked(NOT_FOR_IT):
            self._log_from = file.tell()
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "peer.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=_environment(os.environ, threads),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, command: Command) -> None:
        """Send a command; one that ends in the middle is told by `replies`, not here."""
        try:
            self.pipe.send(command)
        except (BrokenPipeError, ConnectionResetError):
            return

    def replies(self) -> list[Reply]:
        """What has come so far, without waiting.

        Raises:
            EOFError: the process has ended, and all that it said was read.
        """
        found: list[Reply] = []
        try:
            while (message := self.pipe.receive(0.0)) is not None:
                if isinstance(message, Reply):
                    found.append(message)
        except EOFError:
            if not found:
                raise
        return found

    def last_words(self) -> str:
        """Why it ended, as far as can be told: a signal, or the last lines that it printed."""
        code = self._wait(QUIT_S)
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return f"killed by {name}{hint}"
        with self._log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_from, end - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        told = " / ".join(line.strip() for line in lines[-TAIL_LINES:] if line.strip())
        return f"exit code {code}: {told or 'it said nothing'}"

    def close(self) -> None:
        """End it: by a word if it listens, by force if it does not. Never leaves it behind."""
        self.order(Quit())
        self.pipe.close()
        self._wait(QUIT_S)

    def kill(self) -> None:
        """End it now: the person will not wait for the step to end."""
        if self._process.poll() is None:
            self._process.kill()

    def _wait(self, seconds: float) -> int:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@contextmanager
def blocked(signals: frozenset[signal.Signals]) -> Iterator[None]:
    """Have what is started here never hear these signals: a new process keeps what is blocked.

    Ctrl-C and service managers signal every process of a group; the node decides when to stop.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _environment(own: Mapping[str, str], threads: int | None) -> dict[str, str]:
    """Ours, and what leaves the other peers of this host their cores.

    Threads that spin while they wait are twice as fast as sleeping ones where a peer is alone on
    its host, and up to 25 times slower where three share two cores: each may choose for itself.
    """
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **own, "PYTHONUNBUFFERED": "1"}
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment[name] = str(threads)
    return environment

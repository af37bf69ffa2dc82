"""Files that are there whole or not at all, whatever ends the process or the machine.

Every step towards the disk passes `step`: so a test can end a peer between any two of them, in
their order, and see that it goes on from there. No torch, nothing of rounds.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from protocol.home import sync_folder

__all__ = ["Appender", "Watcher", "drafted", "step", "sync_file", "watched", "write_whole"]

MAX_PENDING_BYTES = 16 << 20  # of lines that no disk took; further ones are lost
DRAFT = ".part"  # suffix of a file that is not whole yet

Watcher = Callable[[str, Path], None]
_watchers: list[Watcher] = []


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` before each step; what it raises ends the work there, drafts and all."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def step(what: str, path: Path) -> None:
    """Say what is done to the disk next: write, sync, rename, append or remove this file."""
    for watcher in _watchers:
        watcher(what, path)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Give a draft beside `path` to write: it takes its place, or goes when something fails.

    Not synced: that is for whoever needs it, at a better moment.

    Raises:
        OSError: as the writing, or the folder cannot be written.
    """
    draft = path.with_name(path.name + DRAFT)
    step("write", path)
    try:
        yield draft
        step("rename", path)
        draft.replace(path)
    except Exception:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file whole or not at all; with `sync` it is on the disk when this returns.

    Raises:
        OSError: the disk is full or refuses; what was there stays.
    """
    with drafted(path) as draft, draft.open("wb") as file:
        file.write(content)
        if sync:
            file.flush()
            step("sync", path)
            os.fsync(file.fileno())
    if sync:
        step("sync", path.parent)
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Have what any process wrote to this file on the disk.

    Raises:
        OSError: it is not there, or the disk refuses.
    """
    step("sync", path)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Appender:
    """Whole lines at the end of a file. What a full disk did not take waits, in order."""

    def __init__(self, path: Path) -> None:
        """Open or make it; a last line that a crash has torn is dropped.

        Raises:
            OSError: it cannot be written.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._path = path
        self._pending = bytearray()
        self.num_lost = 0  # lines for which there was no room, neither on disk nor here
        os.ftruncate(self._file, self._end_of_last_line())
        os.lseek(self._file, 0, os.SEEK_END)

    def _end_of_last_line(self) -> int:
        end = os.lseek(self._file, 0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 16))
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

    def append(self, line: bytes) -> None:
        """Write what waits and `line`.

        Raises:
            OSError: the disk did not take all; the rest waits, unless too much waits already.
        """
        if len(self._pending) + len(line) <= MAX_PENDING_BYTES:
            self._pending += line
        else:
            self.num_lost += 1
        step("append", self._path)
        while self._pending:
            written = os.write(self._file, self._pending)
            del self._pending[:written]

    def sync(self) -> None:
        """Have it on the disk.

        Raises:
            OSError: the disk refuses.
        """
        step("sync", self._path)
        os.fsync(self._file)

    def close(self) -> None:
        """Let go of the file; what still waits is lost."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

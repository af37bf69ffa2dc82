"""A full disk for one process, without a disk to fill: new files in a folder are refused.

The launcher names a folder and a mark beside it in the environment. While the mark is there, a
process that has called `watch_disk` gets ENOSPC wherever it would make or empty a file of that
folder. What it has open already, and what it writes over in place, goes on, as on a real disk whose
last blocks are given away; logs that are open are the one exception. No privilege is needed.
"""

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["DISK", "mark_in", "watch_disk"]

DISK = "KINFOLK_DISK"  # variable of the environment: FOLDER, a colon, MARK


def mark_in(folder: Path, mark: Path) -> Mapping[str, str]:
    """The environment of a process whose disk `mark` will say to be full."""
    return {DISK: f"{folder}{os.pathsep}{mark}"}


def watch_disk(environ: Mapping[str, str]) -> None:
    """Let the mark decide from now on; without one in the environment, nothing changes."""
    folder, _, mark = environ.get(DISK, "").rpartition(os.pathsep)
    if not folder:
        return

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or len(arguments) < 3 or not Path(mark).exists():
            return
        path, flags = arguments[0], arguments[2]
        if not isinstance(path, str | os.PathLike) or not isinstance(flags, int):
            return
        inside = os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)
        if inside and makes(flags, exists=Path(path).exists()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    sys.addaudithook(refuse)


def makes(flags: int, *, exists: bool) -> bool:
    """Does opening a file so need a new block?"""
    return bool(flags & os.O_TRUNC) or (bool(flags & os.O_CREAT) and not exists)

"""A person's own folder: where keys and join strings are kept, and that nobody else reads them.

`$KINFOLK_HOME`, or `~/.kinfolk`. Folders are made 0700 and files 0600. Must not know what the
files mean: it hands out paths, private bytes, and locks.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ConfigError, KeyFileError
from protocol.joinstring import JoinString

__all__ = [
    "FoundJoin",
    "Home",
    "find_home",
    "find_join",
    "holder_of",
    "locked",
    "private_folder",
    "read_join",
    "read_private",
    "sync_folder",
    "write_atomically",
    "write_private",
]

MAX_PRIVATE_BYTES = 1 << 16  # of a key or join file; anything longer is another file
_OTHERS_READ_OR_WRITE = 0o077
_OTHERS_WRITE = 0o022


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def runs(self) -> Path:
        """One folder for each run that a coordinator on this host has led."""
        return self.root / "coordinator"

    @property
    def stored_join(self) -> Path:
        """What `peer join STRING` stored."""
        return self.root / "join"

    @property
    def local_join(self) -> Path:
        """The join string of the coordinator that was started last on this host."""
        return self.root / "join.local"


@dataclass(frozen=True, slots=True)
class FoundJoin:
    join: JoinString
    source: str  # where it was found, for an error about it


def find_home(environ: Mapping[str, str]) -> Home:
    """Say where the person's folder is; it is made when something is first written to it.

    Raises:
        ConfigError: neither `$KINFOLK_HOME` nor a home of the user is known.
    """
    named = environ.get("KINFOLK_HOME")
    if named:
        return Home(Path(named).expanduser().absolute())
    try:
        return Home(Path("~/.kinfolk").expanduser())
    except RuntimeError as error:
        raise ConfigError(
            "this user has no home folder", hint="set KINFOLK_HOME to a folder of your own"
        ) from error


def find_join(option: str | None, environ: Mapping[str, str]) -> FoundJoin:
    """Find the join string: `--join`, `$KINFOLK_JOIN`, `peer join`, the local coordinator.

    The first place that has one decides, even if what stands there is torn.

    Raises:
        ConfigError: no place has one, or it is torn; the text says which places were tried.
        KeyFileError: others can read the file that has it.
    """
    home = find_home(environ)
    if option:
        return FoundJoin(JoinString.parse(option), "--join")
    if environ.get("KINFOLK_JOIN"):
        return FoundJoin(JoinString.parse(environ["KINFOLK_JOIN"]), "$KINFOLK_JOIN")
    for path in (home.stored_join, home.local_join):
        if path.exists():
            return FoundJoin(read_join(path), str(path))
    raise ConfigError(
        "no join string: none in --join or $KINFOLK_JOIN, "
        f"none stored by 'peer join' ({home.stored_join}), "
        f"none of a coordinator on this host ({home.local_join})",
        hint="run 'coordinator start' here, or 'peer join STRING' with the line that it printed",
    )


def read_join(path: Path) -> JoinString:
    """Read a stored join string.

    Raises:
        ConfigError: it is torn; the text says in which file.
        KeyFileError: others can read the file.
    """
    try:
        return JoinString.parse(read_private(path).decode("ascii", "replace"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.args[0]}", hint=error.hint) from error


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700, and its parents, where missing; return its path.

    Raises:
        KeyFileError: it cannot be made, or others may write to it, and so put their keys there.
    """
    try:
        if not path.exists():
            if not path.parent.exists():
                private_folder(path.parent)
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise KeyFileError(
            f"the folder {path} cannot be made: {error.strerror or error}",
            hint="set KINFOLK_HOME to a folder of your own",
        ) from error
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS_WRITE:
        raise KeyFileError(
            f"others can write to the folder {path} (mode {mode:04o})", hint=f"chmod 700 {path}"
        )
    return path


def read_private(path: Path) -> bytes:
    """Read a file that only its owner can read.

    Raises:
        KeyFileError: it is missing, too long, not a plain file, or open to others.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            mode = stat.S_IMODE(status.st_mode)
            if mode & _OTHERS_READ_OR_WRITE:
                raise KeyFileError(
                    f"others can read {path} (mode {mode:04o})", hint=f"chmod 600 {path}"
                )
            content = file.read(MAX_PRIVATE_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_PRIVATE_BYTES:
        raise KeyFileError(f"{path} is over {MAX_PRIVATE_BYTES} bytes: not a file of Kinfolk")
    return content


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in a private folder: whole or not at all."""
    private_folder(path.parent)
    write_atomically(path, content)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by one of mode 0600, whole or not at all, and on the disk when this returns.

    Raises:
        OSError: the disk is full or refuses; the old file is untouched.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the renames in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, *, what: str) -> Iterator[None]:
    """Hold a lock file for this process alone; the kernel drops it when the process ends.

    Args:
        path: the lock file, made where missing and never removed: removing it would race.
        what: who is locked, for the error: "a peer named shard3".

    Raises:
        ConfigError: another process holds it; the text has its host and process id.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{what} is already running on {_holder(handle)}",
                hint="stop it first, or choose another name",
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.uname().nodename}, pid {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(handle)


def holder_of(path: Path) -> str | None:
    """Tell who holds a lock file, as "HOST, pid N", or None when nobody does."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(handle)
    else:
        return None
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    return os.pread(handle, 200, 0).decode(errors="replace") or "this host"

"""A run on this host: its folder, lock, keys and book, and the port and word it is found by."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from coordinator.book import Book
from coordinator.config import DEFAULT_BIND, Config, default_run_name, new_book, resume
from coordinator.door import Door, Inbox
from coordinator.journal import Journal
from coordinator.tokens import Token
from protocol.errors import AddressError, ConfigError, KeyFileError
from protocol.home import Home, holder_of, locked, private_folder, read_join, write_private
from protocol.ids import peer_id
from protocol.joinstring import JoinString
from protocol.transport.addresses import HostPort, default_host, parse_host_port
from protocol.transport.base import Transport
from protocol.transport.keys import Identity, load_identity

__all__ = ["Run", "Stored", "announced", "join_string", "keys_of", "listen", "opened", "stored_run"]


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path
    book: Book
    identity: Identity
    journal: Journal
    note: str  # what a person should know of how it was opened, or ""


@dataclass(frozen=True, slots=True)
class Stored:
    """A run as its journal has it."""

    folder: Path
    book: Book
    holder: str | None  # "HOST, pid N" while its coordinator runs


@contextmanager
def opened(home: Home, config: Config, *, now_s: float) -> Iterator[Run]:
    """Start a run, or resume the one of that name, and hold it for this process alone.

    Args:
        home: where its folder is.
        config: what was typed.
        now_s: seconds since 1970, to name a run that nobody named.

    Raises:
        ConfigError: an option differs from the run's, or its coordinator runs already.
        KeyFileError: its keys or its journal cannot be trusted.
    """
    name = config.run_name or _free_name(home, default_run_name(now_s))
    folder = home.runs / name
    is_new = not folder.exists()
    private_folder(folder)
    with locked(folder / "lock", what=f"a coordinator of the run {name}"):
        try:
            yield _open(folder, name, config)
        except BaseException:
            if is_new and not (folder / "journal.json").exists():
                shutil.rmtree(folder)  # it never came to be
            raise


def _free_name(home: Home, name: str) -> str:
    """This name, or one like it when several runs start in one second."""
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    return next((free for free in names if not (home.runs / free).exists()), name)


def _open(folder: Path, name: str, config: Config) -> Run:
    journal = Journal(folder)
    note = ""
    try:
        loaded, torn = journal.load(), ""
    except KeyFileError as error:
        loaded, torn = None, str(error.args[0])
    if loaded is None and (folder / "join").exists():
        book = _lost_book(folder, name, config)
        note = (
            f"{torn or f'there is no journal in {folder}'}: waiting for a member to show its "
            "newest view; nobody new is let in before"
        )
    elif loaded is None and torn:
        raise KeyFileError(torn, hint="restore a journal, or start a new run with another --run")
    elif loaded is None:
        book = new_book(config, run_name=name)
    else:
        book = loaded.book
        resume(book, config)
        note = f"resumed with {len(book.entries)} members"
        if loaded.torn:
            note = f"{loaded.torn}: resumed from the one before it, {len(book.entries)} members"
    if book.refused:
        keys = f"{len(book.refused)} key{'s' * (len(book.refused) != 1)}"
        note += f"; {keys} refused for what they sent: coordinator refused lists them"
    has_begun = loaded is not None or book.lost
    identity = keys_of(folder, name) if has_begun else load_identity(folder / "identity.key")
    book.incarnation += 1
    return Run(folder, book, identity, journal, note)


def keys_of(folder: Path, name: str) -> Identity:
    """Read the keys of a run that has begun: new ones would be another coordinator's.

    Raises:
        KeyFileError: they are gone, or cannot be trusted.
    """
    path = folder / "identity.key"
    if not path.exists():
        raise KeyFileError(
            f"the keys of the run {name} are gone from {path}: no member would believe new ones",
            hint="restore identity.key, or start a new run with another --run",
        )
    return load_identity(path)


def _lost_book(folder: Path, name: str, config: Config) -> Book:
    """All that the join string of a run tells of it, for members to find; they have the rest.

    Raises:
        KeyFileError: the keys are gone too, so that no member would believe us.
    """
    if not (folder / "identity.key").exists():
        raise KeyFileError(
            f"the journal and the keys of the run {name} are both gone from {folder}",
            hint="restore identity.key, or start a new run with another --run",
        )
    join = read_join(folder / "join")
    book = new_book(config, run_name=name)
    book.token, book.tokens = join.token, [Token(secret=join.token)]
    book.advertise = join.host
    book.bind = str(HostPort(DEFAULT_BIND.host, join.port))
    book.lost = True
    return book


def listen(transport: Transport, book: Book, config: Config) -> Door:
    """Bind where it was asked, else where the run was before, else on the default port.

    Args:
        transport: makes the listener.
        book: of the run; whom it refuses is not let in, now and whenever that changes.
        config: what was typed.

    Raises:
        AddressError: the port is in use, or the address not of this machine.
    """
    bind = config.bind or _before(book) or DEFAULT_BIND
    offences = Inbox(transport.wake())
    try:
        # Any other key may say a small Join; what it may say is the directory's business. Asked in
        # the transport's thread: one look into a dict, which is never half changed.
        listener = transport.listen(
            bind.endpoint, admits=lambda key: key not in book.refused, offended=offences.tell
        )
    except AddressError as error:
        raise AddressError(
            str(error.args[0]),
            hint="--bind needs an address of this machine and a free port (0: any); another "
            "coordinator may run here",
        ) from error
    bound = parse_host_port(listener.address, default_port=0)
    if config.advertise or config.bind or not book.advertise:
        host = config.advertise or (default_host() if bound.is_wildcard else bound.host)
        book.advertise = host
    book.bind = str(bound)
    return Door(listener, offences)


def _before(book: Book) -> HostPort | None:
    return parse_host_port(book.bind, default_port=0) if book.bind else None


@contextmanager
def announced(home: Home, run: Run) -> Iterator[JoinString]:
    """Write the book, and the join string where nodes on this host find it, until the end."""
    join = join_string(run.book, run.identity, token=run.book.token)
    word = f"{join}\n".encode()
    if not run.book.lost:
        run.journal.save(run.book)
    write_private(run.folder / "join", word)
    write_private(home.local_join, word)
    try:
        yield join
    finally:
        with suppress(FileNotFoundError):
            if home.local_join.read_bytes() == word:  # not that of a coordinator started since
                home.local_join.unlink()


def join_string(book: Book, identity: Identity, *, token: bytes) -> JoinString:
    """What a node needs to find this run, and to be let in by this token."""
    return JoinString(
        host=book.advertise,
        port=parse_host_port(book.bind, default_port=0).port,
        curve_key=identity.curve_public,
        sign_key=identity.sign_public,
        token=token,
    )


def stored_run(home: Home, name: str | None) -> Stored:
    """Read a run of this host: the one named, else the one that was written last.

    Raises:
        ConfigError: there is none.
        KeyFileError: its journal is torn.
    """
    folder = home.runs / peer_id(name) if name else _newest(home)
    loaded = Journal(folder).load() if folder else None
    if folder is None or loaded is None:
        names = sorted(path.name for path in home.runs.glob("*") if path.is_dir())
        raise ConfigError(
            f"there is no run {name}" if name else "no coordinator has led a run on this host",
            hint=f"there are: {', '.join(names)}" if names else "start one: coordinator start",
        )
    return Stored(folder, loaded.book, holder_of(folder / "lock"))


def _newest(home: Home) -> Path | None:
    journals = list(home.runs.glob("*/journal*.json"))
    return max(journals, key=lambda path: path.stat().st_mtime).parent if journals else None

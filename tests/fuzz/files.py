"""Targets `journals` and `texts`: files that a crash, a disk or a person has spoilt.

Whatever is in them, a reader gives a value or one error that a person is shown as one line.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from coordinator.journal import Journal
from peer.data.card import parse_card
from peer.experiment import load_experiment
from peer.faults.file import load_faults
from peer.journal import read_past
from peer.layout import journal_folder, memory_file, records_file, snapshot_file
from peer.ledger import EVENTS
from peer.past import read_past as read_books
from protocol.errors import OperatorError
from protocol.joinstring import JoinString
from protocol.manifest import parse_assignment
from protocol.transport.addresses import parse_host_port
from protocol.transport.keys import load_identity
from protocol.wire.digest import digest
from tests.fuzz.feed import Feed

RUN = bytes(range(16))
SHM = Path("/dev/shm")  # noqa: S108 - memory in place of a disk: a run writes millions of files


class Folder:
    """A place for the files of one input."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(dir=SHM if os.access(SHM, os.W_OK) else None))
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path)


def journals(data: bytes) -> None:
    """Entries of a peer's journal, its books, and a coordinator's journal."""
    feed = Feed(data)
    with Folder() as folder:
        match feed.byte() % 3:
            case 0:
                _peers(feed, folder)
            case 1:
                _books(feed.rest(), folder)
            case _:
                _coordinators(feed, folder)


def _peers(feed: Feed, folder: Path) -> None:
    """Up to four files, torn or with the digest that they should have."""
    memory = b"memory"
    memory_at = memory_file(folder, digest(memory))
    places = (
        journal_folder(folder) / "00000001.finished",
        journal_folder(folder) / "00000002.finished",
        journal_folder(folder) / "00000003.collected",
        records_file(folder),
    )
    for path in (memory_at, snapshot_file(folder, 1), *places):
        path.parent.mkdir(parents=True, exist_ok=True)
    memory_at.write_bytes(memory)
    while not feed.is_over:
        path, is_whole, content = feed.pick(places), feed.byte() % 2, feed.block()
        path.write_bytes(digest(content) + content if is_whole else content)
    _only_operators(lambda: read_past(folder, RUN))


def _books(content: bytes, folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / EVENTS).write_bytes(content)
    _only_operators(lambda: read_books(folder))


def _coordinators(feed: Feed, folder: Path) -> None:
    """A journal that somebody wrote by hand, its checksum too."""
    content = feed.rest()
    try:
        body = json.loads(content)
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        checksum = blake2b(canonical, digest_size=16).hexdigest()
        text = {"format": "kinfolk-journal-1", "checksum": checksum, "book": body}
        content = json.dumps(text).encode()
    except (ValueError, RecursionError):
        pass
    (folder / "journal.json").write_bytes(content)
    _only_operators(Journal(folder).load)


def texts(data: bytes) -> None:
    """What a person writes or pastes: experiments, faults, cards, keys, join strings, addresses."""
    feed = Feed(data)
    kind, content = feed.byte() % 7, feed.rest()
    text = content.decode(errors="replace")
    match kind:
        case 0 | 1 | 2:
            with Folder() as folder:
                path = folder / "a.toml"
                path.write_bytes(content)
                path.chmod(0o600)
                readers = (load_experiment, load_faults, load_identity)
                _only_operators(lambda: readers[kind](path))
        case 3:
            _only_operators(lambda: JoinString.parse(text))
        case 4:
            _only_operators(lambda: parse_assignment(text))
        case 5:
            _only_operators(lambda: parse_host_port(text, default_port=1))
        case _:
            _only_operators(lambda: parse_card(text))


def _only_operators(read: Callable[[], object]) -> None:
    try:
        read()
    except OperatorError as error:
        assert "\n" not in str(error)[:-1]  # one line

"""A peer's journal: what it needs to go on as the same peer at the same round, whatever ended it.

    state/journal/00000007.collected    what round 7 mixes
    state/journal/00000007.finished     what round 7 came to, and where all of it lies
    state/records                       one line for each round that was finished

Each entry is written beside, synced, renamed, and the folder synced; it carries its digest, and
names what it needs by digest. So a torn one is noticed, and the one before it is used. A round is
shown to others only after its entry is on the disk. No torch: the node writes this.
"""

import logging
import mmap
import os
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from peer.cached import keep_view
from peer.container import header_of
from peer.durable import DRAFT, Appender, step, sync_file, write_whole
from peer.entries import ENTRIES, Collected, Entry, Finished, Good, Past, WrittenRecord, record_of
from peer.layout import (
    check_run,
    inbox_folder,
    journal_folder,
    memory_file,
    memory_folder,
    records_file,
    snapshot_folder,
    state_folder,
)
from peer.ledger import INFLUENCE, SUMMARY
from peer.record import RoundRecord
from peer.work import Published, SnapshotRef
from protocol.errors import ConfigError, KinfolkError
from protocol.wire.codec import decode_document
from protocol.wire.digest import DIGEST_BYTES, digest
from protocol.wire.layout import Layout
from protocol.wire.messages import SignedView, SnapshotManifest

__all__ = ["Journal", "has_journal", "read_past"]

_log = logging.getLogger(__name__)

KEPT = 2  # entries of each kind: the newest, and the one for when that is torn
_FINISHED, _COLLECTED = "finished", "collected"


class Journal:
    """Writes the journal of one run directory; not thread-safe, one thread owns it."""

    def __init__(self, directory: Path, past: Past, *, sync: bool = True) -> None:
        """Open it, and sweep what a process left that was ended in the middle of something.

        Args:
            directory: the peer's run directory.
            past: what was read of it.
            sync: have each entry on the disk before `write` returns; without, a process that is
                killed loses nothing, a machine that loses its power does.

        Raises:
            ConfigError: it cannot be written.
        """
        self._directory, self._sync = directory, sync
        self._memories: list[bytes] = []  # of finished rounds, oldest first
        self._records: Appender | None = None
        try:
            _sweep(directory, past)
            self._open_records(past)
        except OSError as error:
            raise ConfigError(
                f"run directory {directory} cannot be written: {error.strerror or error}"
            ) from None
        if past.finished is not None:
            self._memories.append(past.finished.published.memory)

    def close(self) -> None:
        if self._records is not None:
            self._records.close()
            self._records = None

    def write(self, entry: Entry) -> str:
        """Write an entry and all that it names; what was there before stays until it is there.

        Returns:
            Why the journal is behind now; empty when it is not.
        """
        try:
            if isinstance(entry, Finished):
                return self._finish(entry)
            self._put(entry.round_no, _COLLECTED, entry)
        except OSError as error:
            where = error.filename or self._directory
            return f"{where} cannot be written: {error.strerror or error}"
        return ""

    def view(self, signed: SignedView) -> None:
        """Keep the newest view beside it; one that no disk takes is told, the next one is tried."""
        try:
            keep_view(self._directory, signed, sync=self._sync)
        except OSError as error:
            _log.warning("the view is not kept: %s", error.strerror or error)

    def _finish(self, entry: Finished) -> str:
        if self._records is not None:
            self._records.append(_line(ENTRIES.encode(entry.record)))
            if self._sync:
                self._records.sync()
        memory = entry.published.memory
        if not memory:
            return entry.published.trouble or "the trainer could not write what it remembers"
        if self._sync:
            for path in _files_of(self._directory, entry.published):
                sync_file(path)
            for folder in (memory_folder(self._directory), snapshot_folder(self._directory)):
                sync_file(folder)
        self._put(entry.round_no, _FINISHED, entry)
        self._memories = [*self._memories, memory]
        for old in set(self._memories[:-KEPT]) - set(self._memories[-KEPT:]):
            path = memory_file(self._directory, old)
            step("remove", path)
            path.unlink(missing_ok=True)
        self._memories = self._memories[-KEPT:]
        return entry.published.trouble

    def _put(self, round_no: int, kind: str, entry: Entry) -> None:
        folder = journal_folder(self._directory)
        content = ENTRIES.encode(_moved(entry, self._directory, absolute=False))
        write_whole(folder / f"{round_no:08d}.{kind}", digest(content) + content, sync=self._sync)
        for old in sorted(folder.glob(f"*.{kind}"))[:-KEPT]:
            step("remove", old)
            old.unlink(missing_ok=True)

    def _open_records(self, past: Past) -> None:
        """Go on behind the records of the past; what came after it never happened."""
        path = records_file(self._directory)
        path.parent.mkdir(parents=True, exist_ok=True)
        journal_folder(self._directory).mkdir(exist_ok=True)
        newest = past.finished.round_no if past.finished is not None else 0
        lines = [
            _line(ENTRIES.encode(record)) for record in _records(path) if record.round_no <= newest
        ]
        write_whole(path, b"".join(lines), sync=self._sync)
        self._records = Appender(path)


def has_journal(directory: Path) -> bool:
    """Has a peer been at work here, so that it could go on?"""
    return any(journal_folder(directory).glob("*.*"))


def read_past(directory: Path, run: bytes) -> Past:
    """Read where the last process was: the newest entries that are whole, with all they name.

    Raises:
        ConfigError: entries of another run, or there are some and none is whole.
    """
    finished, faults = _newest_finished(directory, run)
    if faults and finished is None:
        raise ConfigError(
            f"{journal_folder(directory)} cannot be read: {faults[0]}",
            hint="give --force to start anew, which removes what is there",
        )
    newest = finished.round_no if finished is not None else 0
    kept = {r.round_no: record_of(r) for r in _records(records_file(directory))}
    if finished is not None:
        kept[newest] = record_of(finished.record)
    records: list[RoundRecord] = [kept[number] for number in sorted(kept) if number <= newest]
    return Past(finished, _collected_after(directory, run, newest), tuple(records))


# -- reading ----------------------------------------------------------------------------------


class _Torn(KinfolkError):  # noqa: N818 - what the file is, not what was raised
    """A file is not what its digest says."""


def _newest_finished(directory: Path, run: bytes) -> tuple[Finished | None, list[str]]:
    faults: list[str] = []
    for path in sorted(journal_folder(directory).glob(f"*.{_FINISHED}"), reverse=True):
        try:
            entry = _read(directory, path, run)
            if not isinstance(entry, Finished):
                raise _Torn(f"{path} is another entry")
            _check_bytes(memory_file(directory, entry.published.memory), entry.published.memory)
            for ref in _refs_of(entry.published):
                _check_snapshot(ref)
        except (KinfolkError, OSError) as error:
            if isinstance(error, ConfigError):
                raise
            faults.append(str(error))
            continue
        before = tuple(p for p in entry.before if all(map(_is_whole, _refs_of(p))))
        return replace(entry, before=before, good=_whole(entry.good)), faults
    return None, faults


def _collected_after(directory: Path, run: bytes, newest: int) -> Collected | None:
    """What the round after `newest` was to mix, where all of it is still here."""
    for path in sorted(journal_folder(directory).glob(f"*.{_COLLECTED}"), reverse=True):
        with suppress(_Torn, OSError):
            entry = _read(directory, path, run)
            if (
                isinstance(entry, Collected)
                and entry.after == newest
                and all(_is_whole(part.snapshot) for part in entry.mix.inputs)
            ):
                return replace(entry, good=_whole(entry.good))
    return None


def _read(directory: Path, path: Path, run: bytes) -> Entry:
    content = path.read_bytes()
    told, rest = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if digest(rest) != told:
        raise _Torn(f"{path} is torn")
    try:
        entry = ENTRIES.decode(rest)
    except KinfolkError as error:
        raise _Torn(f"{path} is of another version: {error}") from None
    if isinstance(entry, WrittenRecord):
        raise _Torn(f"{path} is no entry")
    check_run(directory, entry.run.hex(), run)
    return _moved(entry, directory, absolute=True)


def _whole(good: tuple[Good, ...]) -> tuple[Good, ...]:
    return tuple(one for one in good if _is_whole(one.snapshot))


def _is_whole(ref: SnapshotRef) -> bool:
    try:
        _check_snapshot(ref)
    except (KinfolkError, OSError):
        return False
    return True


def _check_snapshot(ref: SnapshotRef) -> None:
    """Look at every byte that a snapshot's manifest vouches for.

    Raises:
        _Torn: a byte differs, or the file is too short.
        OSError: it cannot be read.
    """
    if digest(ref.manifest) != ref.digest:
        raise _Torn(f"the manifest of {ref.path} is not the one that its digest names")
    manifest = decode_document(SnapshotManifest, ref.manifest)
    layout = Layout.of(manifest.tensors)
    if layout.body_bytes == 0:
        return
    with Path(ref.path).open("rb") as file:
        if os.fstat(file.fileno()).st_size < ref.offset + layout.body_bytes:
            raise _Torn(f"{ref.path} is torn: it ends too early")
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as whole,
            whole[ref.offset :] as body,
        ):
            if ref.offset and whole[: ref.offset] != header_of(manifest.tensors, layout):
                raise _Torn(f"{ref.path} is torn in its header")
            for spec, place in zip(manifest.tensors, layout.places, strict=True):
                with body[place.start : place.end] as piece:
                    if digest(piece) != spec.digest:
                        raise _Torn(f"{ref.path} is torn in {spec.name}")


def _check_bytes(path: Path, name: bytes) -> None:
    if digest(path.read_bytes()) != name:
        raise _Torn(f"{path} is torn")


def _line(encoded: bytes) -> bytes:
    return b64encode(digest(encoded) + encoded) + b"\n"


def _records(path: Path) -> Iterator[WrittenRecord]:
    """Those that are whole, in order; of a round that was finished twice, the last."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    found: dict[int, WrittenRecord] = {}
    for line in lines:
        try:
            content = b64decode(line, validate=True)
            record = ENTRIES.decode(content[DIGEST_BYTES:])
        except (NotBase64, KinfolkError):
            continue
        whole = digest(content[DIGEST_BYTES:]) == content[:DIGEST_BYTES]
        if whole and isinstance(record, WrittenRecord):
            found[record.round_no] = record
    yield from (found[number] for number in sorted(found))


# -- names and places ----------------------------------------------------------------------------


def _refs_of(published: Published) -> tuple[SnapshotRef, ...]:
    return (published.snapshot, *published.more)


def _files_of(directory: Path, published: Published) -> Iterator[Path]:
    yield memory_file(directory, published.memory)
    yield from (Path(ref.path) for ref in _refs_of(published))


def _moved(entry: Entry, directory: Path, *, absolute: bool) -> Entry:
    """The same entry with paths below the run directory, or whole: a folder may be moved."""

    def ref(one: SnapshotRef) -> SnapshotRef:
        path = Path(one.path)
        if absolute:
            return replace(one, path=str(directory / path))
        return replace(one, path=str(path.relative_to(directory)))

    def published(one: Published) -> Published:
        return replace(one, snapshot=ref(one.snapshot), more=tuple(map(ref, one.more)))

    good = tuple(replace(one, snapshot=ref(one.snapshot)) for one in entry.good)
    if isinstance(entry, Finished):
        before = tuple(map(published, entry.before))
        return replace(entry, published=published(entry.published), before=before, good=good)
    inputs = tuple(replace(part, snapshot=ref(part.snapshot)) for part in entry.mix.inputs)
    return replace(entry, mix=replace(entry.mix, inputs=inputs), good=good)


def _sweep(directory: Path, past: Past) -> None:
    """Remove drafts, and memories that nothing names any more."""
    folders = (journal_folder, memory_folder, snapshot_folder, inbox_folder, state_folder, Path)
    drafts = chain.from_iterable(folder(directory).glob(f"*{DRAFT}") for folder in folders)
    in_root = (directory.glob(f".{name}.*") for name in (INFLUENCE, SUMMARY))
    for draft in [*drafts, *chain.from_iterable(in_root)]:
        draft.unlink(missing_ok=True)
    finished = past.finished
    newest = finished.published.memory if finished is not None else b""
    kept = {memory_file(directory, newest)}
    for old in set(memory_folder(directory).glob("*.safetensors")) - kept:
        old.unlink(missing_ok=True)

import json
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from coordinator import journal as journal_module
from coordinator.book import Book
from coordinator.journal import Journal, _checksum, _encoded
from coordinator.refusals import Offence
from protocol.errors import KeyFileError
from protocol.wire.messages import Lift
from tests.unit.coordinator.town import A, B, Town


def full_book() -> Book:
    """One with something in every field."""
    town = Town(founders=1)
    town.ready(A, B)
    town.join(A.but(instance=b"process2"))
    town.book.bind, town.book.advertise = "0.0.0.0:7733", "10.0.0.5"
    town.book.relays = 1
    town.directory.offended(Offence(B.key, "16 MiB of a message without an end"), 1.0)
    return town.book


def test_a_book_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    book = full_book()
    Journal(tmp_path).save(book)
    loaded = Journal(tmp_path).load()
    assert loaded is not None
    assert (loaded.book, loaded.torn) == (book, "")


def test_there_is_nothing_to_load_before_the_first_save(tmp_path: Path) -> None:
    assert Journal(tmp_path).load() is None


def test_a_journal_is_for_its_owner_only(tmp_path: Path) -> None:
    Journal(tmp_path).save(full_book())
    Journal(tmp_path).save(full_book())
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"journal.json": 0o600, "journal.previous.json": 0o600}


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    return content.replace(b'"founders": 1', b'"founders": 3')


def rename(content: bytes) -> bytes:
    return content.replace(b"kinfolk-journal-1", b"kinfolk-journal-9")


def empty(content: bytes) -> bytes:
    return b""


def other(content: bytes) -> bytes:
    return json.dumps([1, 2]).encode()


@pytest.mark.parametrize("damage", [cut, flip, rename, empty, other])
def test_a_torn_journal_is_told_and_the_one_before_it_is_used(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    book = full_book()
    journal = Journal(tmp_path)
    journal.save(book)
    journal.save(full_book())
    path = tmp_path / "journal.json"
    path.write_bytes(damage(path.read_bytes()))
    loaded = journal.load()
    assert loaded is not None
    assert "journal.json is torn" in loaded.torn
    # The torn one may have been of the next start, so its incarnation is skipped.
    assert loaded.book.incarnation == book.incarnation + 1
    assert loaded.book.entries == book.entries
    assert loaded.book.refused == {B.key: book.refused[B.key]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": "00"}, "a refused key of 1 bytes, must be of 32"),
        ({"key": "zz" * 32}, "non-hexadecimal"),
        ({"at_s": 1e300}, "at_s is 1e\\+300, must be in"),
        ({"at_s": "soon"}, "could not convert"),
    ],
)
def test_a_journal_with_a_refusal_that_cannot_be_is_torn(
    tmp_path: Path, change: dict[str, object], why: str
) -> None:
    Journal(tmp_path).save(full_book())
    path = tmp_path / "journal.json"
    text = json.loads(path.read_text())
    text["book"]["refused"][0] |= change
    text["checksum"] = journal_module._checksum(text["book"])
    path.write_text(json.dumps(text))
    with pytest.raises(KeyFileError, match=rf"journal\.json is torn \(.*{why}"):
        Journal(tmp_path).load()


def test_a_crash_between_the_two_renames_loses_only_what_was_not_promised(tmp_path: Path) -> None:
    Journal(tmp_path).save(full_book())
    (tmp_path / "journal.json").rename(tmp_path / "journal.previous.json")
    assert Journal(tmp_path).load() is not None


def test_two_torn_journals_are_the_operators_to_mend(tmp_path: Path) -> None:
    for name in ("journal.json", "journal.previous.json"):
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(KeyFileError, match=r"journal\.previous\.json is torn"):
        Journal(tmp_path).load()


HOSTILE: list[object] = [
    None,
    True,
    -1,
    2**62,
    1.5,
    1e300,
    "",
    "x",
    "\x1b[31m",
    "00" * 32,
    "a" * 5000,
    [],
    {},
    [1],
]


def places(value: object, here: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where anything stands in a JSON value."""
    parts: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield (*here, key)
        yield from places(part, (*here, key))


def changed(book: Any, place: tuple[str | int, ...], value: object) -> bytes:
    """A journal with another value at a place, and a checksum that fits it."""
    book = deepcopy(book)
    table = book
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] = value
    text = {"format": "kinfolk-journal-1", "checksum": _checksum(book), "book": book}
    return json.dumps(text).encode()


def test_a_journal_whose_checksum_fits_is_torn_or_can_be_worked_with(tmp_path: Path) -> None:
    Journal(tmp_path).save(full_book())
    path = tmp_path / "journal.json"
    whole = json.loads(path.read_bytes())["book"]
    torn = 0
    for place in places(whole):
        for value in HOSTILE:
            path.write_bytes(changed(whole, place, value))
            try:
                loaded = Journal(tmp_path).load()
            except KeyFileError as error:
                assert "\n" not in str(error), place
                torn += 1
                continue
            assert loaded is not None
            town = Town(book=loaded.book)
            town.hear(A, A.join())
            for token in loaded.book.tokens:
                assert token.limits()
                token.fault(1.8e9)
            town.order(Lift("b"))
            assert _encoded(town.book)
    assert torn > 500

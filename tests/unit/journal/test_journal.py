"""The journal of a run directory: what is read back, and what a torn byte or a full disk does."""

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin, get_type_hints

import pytest
import torch

from peer.durable import watched
from peer.entries import Collected, Finished, Past, record_of, written
from peer.exchange import Origin, write_contribution
from peer.journal import Journal, has_journal, read_past
from peer.layout import journal_folder, memory_file, memory_folder, snapshot_file, state_folder
from peer.record import RoundRecord
from peer.work import Input, Mix, Published, Score, SnapshotRef, Weights
from protocol.errors import ConfigError
from protocol.ids import PeerId
from protocol.round import Trained
from protocol.wire.digest import digest

RUN = bytes(range(16))
SCORE = Score(0.5, 1.0, 0.25, 2.0)
A, B = PeerId("a"), PeerId("b")


def record(number: int) -> RoundRecord:
    return RoundRecord(
        round_no=number,
        used={B: number - 1},
        stale={PeerId("c"): 2},
        missing=(PeerId("d"),),
        refused={PeerId("e"): "a NaN"},
        skipped=(1, 2),
        waited_s=0.1,
        train_loss=0.7,
        own=SCORE,
        weights=(Weights("a", 0.25, 1.5, (0.1, 0.9)), Weights("b", 0.75, -1.0, ())),
        notes={"absent": 3.0},
        digest="ab",
        tensors={"params/w": "0011"},
    )


def snapshot(path: Path, sender: str, number: int) -> SnapshotRef:
    path.parent.mkdir(parents=True, exist_ok=True)
    origin = Origin(run=RUN, sender=PeerId(sender), round_no=number, base=b"", degree=1)
    params = {"w": torch.full((3, 5), float(number)), "b": torch.ones(2)}
    return write_contribution(path, origin, Trained(params=params, num_examples=1, num_steps=1))


def published(folder: Path, number: int) -> Published:
    """What a trainer leaves of a round."""
    content = f"memory of {number}".encode()
    path = memory_file(folder, digest(content))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    ref = snapshot(snapshot_file(folder, number), "a", number)
    return Published(number, ref, bytes(32), memory=digest(content))


def finished(folder: Path, number: int, *, before: Published | None = None) -> Finished:
    earlier = (before,) if before is not None else ()
    done = published(folder, number)
    return Finished(RUN, number, done, earlier, written(record(number)), 1.5, ())


def collected(folder: Path, number: int) -> Collected:
    ref = snapshot(state_folder(folder) / "inbox" / "b.0.body", "b", number - 1)
    mix = Mix(number, 1, (Input(ref, 1.0),), ("a", "b"))
    return Collected(RUN, number, number - 1, mix, ("b",), ("b",), (), (), (), (), 0.5, ())


def two_rounds(folder: Path) -> tuple[Finished, Finished]:
    journal = Journal(folder, Past())
    one = finished(folder, 1)
    two = finished(folder, 2, before=one.published)
    assert journal.write(one) == journal.write(two) == ""
    journal.close()
    return one, two


def flip(path: Path, *, at: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 1
    path.write_bytes(content)


def test_what_was_written_is_read_wherever_the_folder_is_then(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    _, two = two_rounds(folder)
    moved = folder.rename(tmp_path / "moved")
    past = read_past(moved, RUN)
    assert past.finished is not None
    assert past.finished.published.snapshot.path == str(snapshot_file(moved, 2))
    assert past.finished.record == two.record
    assert past.records == (record(1), record(2))
    assert past.collected is None


def test_a_record_survives_being_written() -> None:
    kept = record_of(written(record(7)))
    assert kept == record(7)
    assert isinstance(kept.weights[0], Weights)
    empty = RoundRecord(round_no=1, used={}, stale={}, missing=(), refused={})
    assert record_of(written(empty)) == empty
    odd = replace(record(7), train_loss=float("inf"), mixed=SCORE, notes={"x": 0.1 + 0.2})
    assert record_of(written(odd)) == odd


def any_value(hint: object) -> object:
    """Something of a type that is not what a field has by default."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return any_value(parts[0])
    if origin in (Union, UnionType):
        return any_value(parts[0])
    if origin is tuple:
        return (any_value(parts[0]), any_value(parts[0]))
    if origin is Mapping:
        return {"x": any_value(parts[1])}
    if is_dataclass(hint):
        assert isinstance(hint, type)
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{name: any_value(of) for name, of in hints.items()})
    values: dict[object, object] = {int: 3, float: 0.1, str: "y", PeerId: "z"}
    return values[hint]


def test_no_field_of_a_record_is_left_out() -> None:
    full = any_value(RoundRecord)
    assert isinstance(full, RoundRecord)
    assert record_of(written(full)) == full


@pytest.mark.parametrize(
    "torn",
    [
        lambda folder: journal_folder(folder) / "00000002.finished",
        lambda folder: snapshot_file(folder, 2),
        lambda folder: memory_file(folder, digest(b"memory of 2")),
    ],
)
def test_where_a_byte_differs_the_entry_before_is_used(tmp_path: Path, torn) -> None:  # type: ignore[no-untyped-def]
    two_rounds(tmp_path)
    flip(torn(tmp_path))
    past = read_past(tmp_path, RUN)
    assert past.finished is not None
    assert past.finished.round_no == 1
    assert [r.round_no for r in past.records] == [1]


def test_a_byte_at_the_very_end_of_a_snapshot_counts(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    flip(snapshot_file(tmp_path, 2), at=-1)
    past = read_past(tmp_path, RUN)
    assert past.finished is not None
    assert past.finished.round_no == 1


def test_a_file_that_ends_too_early_is_torn(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    path = snapshot_file(tmp_path, 2)
    path.write_bytes(path.read_bytes()[:-1])
    past = read_past(tmp_path, RUN)
    assert past.finished is not None
    assert past.finished.round_no == 1


def test_when_nothing_is_whole_it_says_so_and_touches_nothing(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    for path in journal_folder(tmp_path).iterdir():
        flip(path)
    with pytest.raises(ConfigError, match=r"00000002\.finished is torn") as caught:
        read_past(tmp_path, RUN)
    assert "--force" in caught.value.hint
    assert has_journal(tmp_path)


def test_another_run_is_refused(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    with pytest.raises(ConfigError, match=r"holds another run \(00010203\)"):
        read_past(tmp_path, bytes(16))


def test_what_was_collected_counts_only_after_the_newest_round_and_with_all_inputs(
    tmp_path: Path,
) -> None:
    two_rounds(tmp_path)
    journal = Journal(tmp_path, read_past(tmp_path, RUN))
    third = collected(tmp_path, 3)
    assert journal.write(third) == ""
    assert read_past(tmp_path, RUN).collected == third
    flip(tmp_path / "state" / "inbox" / "b.0.body", at=-1)
    assert read_past(tmp_path, RUN).collected is None
    journal.close()


def test_only_the_newest_two_of_each_kind_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Past())
    for number in range(1, 6):
        journal.write(collected(tmp_path, number))
        journal.write(finished(tmp_path, number))
    journal.close()
    names = sorted(path.name for path in journal_folder(tmp_path).iterdir())
    kept = [f"0000000{n}.{kind}" for n in (4, 5) for kind in ("collected", "finished")]
    assert names == kept
    assert len(list(memory_folder(tmp_path).iterdir())) == 2
    assert [r.round_no for r in read_past(tmp_path, RUN).records] == [1, 2, 3, 4, 5]


def test_a_round_that_was_never_finished_leaves_no_record(tmp_path: Path) -> None:
    """Its line was written, its entry was not: it is played again, and counted once."""
    _, two = two_rounds(tmp_path)
    (journal_folder(tmp_path) / "00000002.finished").unlink()
    past = read_past(tmp_path, RUN)
    assert [r.round_no for r in past.records] == [1]
    journal = Journal(tmp_path, past)
    again = replace(two, published=published(tmp_path, 2))  # the trainer has written it anew
    assert journal.write(again) == ""
    journal.close()
    assert [r.round_no for r in read_past(tmp_path, RUN).records] == [1, 2]


def test_everything_is_synced_before_the_entry_takes_its_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Past())
    entry = finished(tmp_path, 1)
    steps: list[tuple[str, str]] = []
    with watched(lambda what, path: steps.append((what, path.name))):
        journal.write(entry)
    journal.close()
    named = steps.index(("rename", "00000001.finished"))
    synced = {name for what, name in steps[:named] if what == "sync"}
    memory = f"{digest(b'memory of 1').hex()}.safetensors"
    assert {"records", memory, "00000001.safetensors", "memory", "snapshots"} <= synced
    assert ("sync", "00000001.finished") in steps[:named]
    assert ("sync", "journal") in steps[named:]


@contextmanager
def no_file_longer_than(num_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_nothing_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    one, _ = two_rounds(tmp_path)
    journal = Journal(tmp_path, read_past(tmp_path, RUN))
    three, four = finished(tmp_path, 3), finished(tmp_path, 4)
    with no_file_longer_than(10):
        assert "File too large" in journal.write(three)
    assert read_past(tmp_path, RUN).finished is not None
    assert journal.write(four) == ""
    journal.close()
    past = read_past(tmp_path, RUN)
    assert past.finished is not None
    assert past.finished.round_no == 4
    assert [r.round_no for r in past.records] == [1, 2, 3, 4]
    assert one.round_no == 1

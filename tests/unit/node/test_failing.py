"""What cannot be pulled, and what cannot be written."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from peer.checkpoint import write_model, write_snapshot
from peer.machine import Phase
from peer.record import RoundRecord
from protocol.errors import DataError
from protocol.ids import PeerId
from protocol.tensors import spec_body
from tests.unit.machine.stage import Stage, manifest_of

B = PeerId("b")
TENSORS = {"w": torch.zeros(1000)}  # 4000 bytes


def fail_pulls(stage: Stage, *, times: int) -> None:
    for _ in range(times):
        stage.offer("b", stage.machine.round_no - 1)
        stage.said += stage.machine.pull_failed(B, "no room", stage.now_s)


def refused_in_round_two(stage: Stage) -> RoundRecord:
    stage.found()
    stage.up()
    stage.work()
    stage.give("c", 1)
    fail_pulls(stage, times=3)
    return stage.record(stage.work())


def test_a_pull_that_fails_twice_is_asked_for_again() -> None:
    stage = Stage("bc")
    stage.found()
    stage.up()
    stage.work()
    asked = len(stage.questions(stage.said))
    fail_pulls(stage, times=2)
    assert stage.questions(stage.said)[asked:] == [("b", 1), ("b", 1)]
    assert stage.machine.phase is Phase.COLLECT


def test_the_third_failure_of_a_round_is_not_asked_for_again_but_recorded() -> None:
    record = refused_in_round_two(Stage("bc"))
    assert record.refused == {"b": "3 pulls failed, the last: no room"}
    assert (record.used, record.missing) == ({"c": 1}, ("b",))


def test_the_next_round_asks_anew() -> None:
    stage = Stage("bc")
    refused_in_round_two(stage)
    assert stage.questions(stage.said)[-2:] == [("b", 2), ("c", 2)]
    stage.give("b", 2)
    stage.give("c", 2)
    assert stage.record(stage.work()).refused == {}


@contextmanager
def no_room() -> Iterator[None]:
    """No file may have more than 1000 bytes: not even the one that the test runner writes to."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_model_for_which_there_is_no_room_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    told = f"{path} cannot be written: File too large"
    with pytest.raises(DataError, match=told), no_room():
        write_model(path, TENSORS, {})
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    assert path.read_bytes() == b"old"


def test_a_snapshot_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    sections = {"params": TENSORS}
    manifest = replace(manifest_of("a", 1), tensors=spec_body(sections))
    path = tmp_path / "00000001.safetensors"
    told = f"{path} cannot be written: File too large"
    with pytest.raises(DataError, match=told), no_room():
        write_snapshot(path, manifest, sections)
    assert list(tmp_path.iterdir()) == []

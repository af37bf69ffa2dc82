"""What a trainer remembers, as a file: the next process is where the last one was."""

from errno import ENOSPC
from pathlib import Path

import pytest
import torch

from peer.durable import watched
from peer.exchange import digest_of, read_contribution
from peer.layout import memory_file, snapshot_file
from peer.memory import Memory, read_memory, write_memory
from peer.roles import Role
from peer.trainer import Trainer
from peer.work import Evaluate, Mix, Prepare, Publish, Setting, SnapshotRef, Train
from peer.work import Input as Part
from protocol.errors import DataError
from protocol.ids import PeerId
from protocol.round import Trained
from tests.unit.training.classroom import RUN, Pupil

CPU = torch.device("cpu")


def test_every_tensor_and_number_comes_back_in_its_order(tmp_path: Path) -> None:
    trained = Trained(
        params={"z/w": torch.randn(2, 3), "a": torch.zeros(())},
        buffers={"n": torch.tensor(7)},
        extras={"h": torch.ones(4, dtype=torch.bfloat16)},
        personal={"a": torch.ones(())},
        num_examples=9,
        num_steps=3,
        nova_a=2.5,
        lr=0.1,
        train_loss=float("inf"),
        start_loss=0.3,
        class_counts=(4, 5),
    )
    states = {"mixer": {"kept/by": {"x": torch.arange(3)}, "empty": {}}, "solver": {}}
    memory = Memory(
        round_no=4,
        trained=trained,
        states=states,
        norms={PeerId("b"): 1.25},
        base=b"b" * 32,
        aggregator=b"m" * 32,
        degree=2,
        num_rounds=3,
    )
    back = read_memory(tmp_path, write_memory(tmp_path, memory, published=None), CPU)
    for section in ("params", "buffers", "extras", "personal"):
        ours, theirs = getattr(back.trained, section), getattr(trained, section)
        assert list(ours) == list(theirs)
        for name, tensor in theirs.items():
            assert ours[name].dtype == tensor.dtype
            assert torch.equal(ours[name], tensor)
    assert (back.trained.train_loss, back.trained.class_counts) == (float("inf"), (4, 5))
    assert back.states["mixer"].keys() == {"kept/by", "empty"}
    assert torch.equal(back.states["mixer"]["kept/by"]["x"], torch.arange(3))
    assert (back.round_no, back.degree, back.num_rounds) == (4, 2, 3)
    assert (back.base, back.aggregator, dict(back.norms)) == (b"b" * 32, b"m" * 32, {"b": 1.25})


def test_a_torn_file_is_not_taken_for_whole(tmp_path: Path) -> None:
    trained = Trained(params={"w": torch.ones(3)}, num_examples=1, num_steps=1)
    memory = Memory(round_no=1, trained=trained, states={}, norms={})
    name = write_memory(tmp_path, memory, published=None)
    path = memory_file(tmp_path, name)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="torn"):
        read_memory(tmp_path, name, CPU)


def heir_of(pupil: Pupil, memory: bytes) -> Trainer:
    """The trainer of another process, that goes on from this memory."""
    bench = pupil.trainer._ready().bench
    settings = tuple(Setting(key, value) for key, value in bench.settings.flat.items())
    heir = Trainer()
    heir.prepare(
        Prepare(
            pupil.name,
            Role.PEER,
            RUN,
            settings,
            str(pupil.shard),
            "cpu",
            str(pupil.folder),
            memory=memory,
        )
    )
    return heir


def played(trainer: Trainer, number: int, refs: list[SnapshotRef]) -> bytes:
    inputs = tuple(Part(ref, 1.0) for ref in refs)
    trainer.mix(Mix(number, len(refs), inputs, ("peer_a", "peer_b")))
    trainer.train(Train(number), lambda _done, _planned: None)
    trainer.evaluate(Evaluate(number))
    return trainer.publish(Publish(number)).content


@pytest.mark.parametrize(
    "method",
    [
        "kinfolk",
        "scaffold",
        "fedrod",
        pytest.param("ditto", marks=pytest.mark.long),
        pytest.param("moon", marks=pytest.mark.long),
    ],
)
def test_another_process_computes_the_same_next_round(tmp_path: Path, method: str) -> None:
    a, b = (Pupil(tmp_path, name, method=method) for name in ("peer_a", "peer_b"))
    ref, _ = b.play(1, [])
    a.play(1, [])
    memory = a.trainer.publish(Publish(1)).memory
    assert memory
    assert snapshot_file(a.folder, 1).exists()
    meant = played(a.trainer, 2, [ref])
    assert played(heir_of(a, memory), 2, [ref]) == meant


def test_what_the_snapshot_holds_is_not_written_twice(tmp_path: Path) -> None:
    pupil = Pupil(tmp_path, "peer_a", method="gossip")
    pupil.play(1, [])
    memory = pupil.trainer.publish(Publish(1)).memory
    size = memory_file(pupil.folder, memory).stat().st_size
    assert size * 10 < snapshot_file(pupil.folder, 1).stat().st_size


def test_what_no_disk_takes_is_served_from_memory_and_said_so(tmp_path: Path) -> None:
    pupil = Pupil(tmp_path, "peer_a")
    pupil.play(1, [])
    on_disk = pupil.trainer.publish(Publish(1))

    def full(what: str, path: Path) -> None:
        if what == "write":
            raise OSError(ENOSPC, "No space left on device", str(path))

    with watched(full):
        held = pupil.trainer.publish(Publish(1))
        pupil.trainer.evaluate(Evaluate(1))
    assert held.content == on_disk.content
    assert held.memory == b""
    assert held.trouble.endswith("cannot be written: No space left on device")
    assert not held.snapshot.path.startswith(str(tmp_path))
    params = read_contribution(held.snapshot).trained.params
    assert digest_of(params) == digest_of(read_contribution(on_disk.snapshot).trained.params)
    unsaved = pupil.trainer.publish(Publish(1))
    assert unsaved.memory == on_disk.memory
    assert "model.safetensors cannot be written" in unsaved.trouble
    pupil.trainer.evaluate(Evaluate(1))
    assert pupil.trainer.publish(Publish(1)).trouble == ""

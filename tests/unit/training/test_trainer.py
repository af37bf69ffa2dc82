"""A trainer alone and among others: what it writes, mixes, refuses and remembers."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from peer.checkpoint import map_snapshot
from peer.exchange import Origin, read_contribution, write_contribution
from peer.layout import snapshot_folder
from peer.options.fields import Value
from peer.trainer import Trainer
from peer.work import Alone, Evaluate, Mix, Publish, SnapshotRef, Train
from peer.work import Input as Part
from protocol.errors import DataError, LocalProtocolError
from protocol.ids import PeerId
from protocol.steps import advance
from protocol.wire.layout import Layout, schema_digest
from protocol.wire.messages import Part as Kind
from tests.unit.training.classroom import RUN, Pupil, write_digits


def rounds(pupils: list[Pupil], count: int) -> None:
    refs = {p.name: p.play(1, [])[0] for p in pupils}
    for round_no in range(2, count + 1):
        inputs = {p.name: [refs[o.name] for o in pupils if o is not p] for p in pupils}
        refs = {p.name: p.play(round_no, inputs[p.name])[0] for p in pupils}


def test_all_peers_begin_with_the_same_model(tmp_path: Path) -> None:
    a, b = Pupil(tmp_path, "a"), Pupil(tmp_path, "b")
    assert a.prepared.init == b.prepared.init
    assert a.prepared.schema == b.prepared.schema


def test_another_seed_is_another_model_of_the_same_schema(tmp_path: Path) -> None:
    a, b = Pupil(tmp_path, "a"), Pupil(tmp_path, "b", **{"run.seed": 1})
    assert a.prepared.init != b.prepared.init
    assert a.prepared.schema == b.prepared.schema


def test_a_round_learns(tmp_path: Path) -> None:
    a = Pupil(tmp_path, "a", **{"solver.epochs": 10})
    _, scores = a.play(1, [])
    assert scores.trained.val_loss < scores.mixed.val_loss
    assert scores.own == scores.trained


def test_mixing_says_what_each_contribution_weighs(tmp_path: Path) -> None:
    a, b = Pupil(tmp_path, "a"), Pupil(tmp_path, "b")
    rounds([a, b], 2)
    assert [w.sender for w in a.mixed.weights] == ["a", "b"]
    assert sum(w.client_weight for w in a.mixed.weights) == pytest.approx(1.0)
    assert [len(w.class_weight) for w in a.mixed.weights] == [10, 10]


def test_two_runs_of_the_same_seed_publish_the_same_digests(tmp_path: Path) -> None:
    digests = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        a, b = Pupil(tmp_path / folder, "a"), Pupil(tmp_path / folder, "b")
        rounds([a, b], 3)
        digests.append(a.trainer.publish(Publish(3)).snapshot.digest)
    assert digests[0] == digests[1]


def test_a_published_file_is_safetensors_and_its_tensors_are_aligned(tmp_path: Path) -> None:
    a = Pupil(tmp_path, "a")
    ref, _ = a.play(1, [])
    _, sections = map_snapshot(ref)
    with safe_open(ref.path, "pt") as file:
        for name, tensor in sections["params"].items():
            assert torch.equal(file.get_tensor(f"params/{name}"), tensor)
    assert all(t.data_ptr() % 64 == 0 for t in sections["params"].values())


def test_only_the_last_two_snapshots_are_kept(tmp_path: Path) -> None:
    a = Pupil(tmp_path, "a")
    for round_no in (1, 2, 3):
        a.play(round_no, [])
    kept = sorted(p.name for p in (a.folder / "state" / "snapshots").iterdir())
    assert kept == ["00000002.safetensors", "00000003.safetensors"]


def test_the_personal_model_carries_what_rebuilds_it(tmp_path: Path) -> None:
    a = Pupil(tmp_path, "a")
    a.play(1, [])
    path = a.folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        card = json.loads(file.metadata()["kinfolk"])
    assert card["model"] == "mlp"
    assert card["input_shape"] == [1, 8, 8]
    assert card["classes"] == list("0123456789")
    assert sum(t.numel() for t in load_file(path).values()) == a.prepared.num_parameters


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda t: torch.full_like(t, torch.nan), "NaN"),
        (lambda t: torch.full_like(t, torch.inf), "infinity"),
        (lambda t: t * 1000, "norm"),
        (lambda t: t * 0, "norm"),
    ],
)
def test_parameters_that_are_unfit_are_refused(tmp_path: Path, harm, told: str) -> None:  # type: ignore[no-untyped-def]
    a, b = Pupil(tmp_path, "a"), Pupil(tmp_path, "b")
    ref, _ = b.play(1, [])
    assert a.fault("b", ref) == ""
    good = read_contribution(ref).trained
    bad = replace(good, params={name: harm(t) for name, t in good.params.items()})
    origin = Origin(run=RUN, sender=PeerId("b"), round_no=1, base=b"", degree=1)
    assert told in a.fault("b", write_contribution(tmp_path / "bad.safetensors", origin, bad))


def test_each_check_of_admission_can_be_switched_off(tmp_path: Path) -> None:
    a = Pupil(tmp_path, "a", **{"admit.norm": False, "admit.finite": False})
    b = Pupil(tmp_path, "b")
    good = read_contribution(b.play(1, [])[0]).trained
    origin = Origin(run=RUN, sender=PeerId("b"), round_no=1, base=b"", degree=1)
    for factor in (1000.0, torch.nan):
        bad = replace(good, params={name: t * factor for name, t in good.params.items()})
        assert a.fault("b", write_contribution(tmp_path / "bad.safetensors", origin, bad)) == ""


def test_training_that_diverges_leaves_no_nan_behind(tmp_path: Path) -> None:
    wild: dict[str, Value] = {"solver": "sgd", "solver.lr": 1e6, "solver.epochs": 20}
    a = Pupil(tmp_path, "a", **wild)
    ref, _ = a.play(1, [])
    assert a.done.loss == -1.0
    assert all(t.isfinite().all() for t in read_contribution(ref).trained.params.values())


def test_a_late_joiner_begins_at_its_neighbours_mean(tmp_path: Path) -> None:
    a, b, c = (Pupil(tmp_path, name) for name in "abc")
    refs = [p.play(1, [])[0] for p in (a, b)]
    c.play(2, refs)
    weights = {w.sender: w.client_weight for w in c.mixed.weights}
    assert weights == {"a": 0.5, "b": 0.5}


def test_a_mix_shares_no_memory_with_a_receive_buffer(tmp_path: Path) -> None:
    a, b = Pupil(tmp_path, "a", mixer="fedavg"), Pupil(tmp_path, "b", mixer="fedavg")
    ref_a, ref_b = a.play(1, [])[0], b.play(1, [])[0]
    a.trainer.mix(Mix(2, 1, (Part(ref_b, 1.0),), ()))
    with Path(ref_b.path).open("r+b") as file:  # the next pull into the same buffer
        file.write(bytes(Path(ref_b.path).stat().st_size))
    a.trainer.train(Train(2), lambda _done, _planned: None)
    assert a.trainer.evaluate(Evaluate(2)).mixed.val_loss < 10.0
    assert ref_a.digest != ref_b.digest


def test_training_alone_has_the_same_number_of_rounds(tmp_path: Path) -> None:
    a = Pupil(tmp_path, "a", method="local", **{"run.rounds": 2})
    scores = [a.play(round_no, [])[1] for round_no in (1, 2)]
    alone = a.trainer.alone(Alone("same"), lambda _done, _planned: None)
    assert alone.score == scores[-1].trained


def test_a_local_method_shares_an_empty_snapshot(tmp_path: Path) -> None:
    a = Pupil(tmp_path, "a", method="local")
    assert a.prepared.exchange == "none"
    manifest, _ = map_snapshot(a.play(1, [])[0])
    assert manifest.tensors == ()


def test_work_before_prepare_is_our_own_bug(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="before Prepare"):
        Trainer().publish(Publish(1))


def test_a_shard_of_another_shape_is_refused(tmp_path: Path) -> None:
    write_digits(tmp_path / "odd.npz", first=0, num=10)
    with pytest.raises(DataError, match="inputs"):
        Pupil(tmp_path, "a", **{"data.input": "3x8x8"})


@pytest.mark.parametrize(
    ("codec", "method"), [("int8", "fedc2i"), ("int8", "scaffold"), ("bf16", "fedavg")]
)
def test_a_peer_mixes_its_own_result_as_the_others_read_it(
    tmp_path: Path, codec: str, method: str
) -> None:
    options: dict[str, Value] = {"share.codec": codec, "method": method}
    a = Pupil(tmp_path, "a", **options)
    b = Pupil(tmp_path, "b", **options)
    ref, _ = a.play(1, [])
    read = read_contribution(ref, coder=b.trainer._ready().coder).trained
    own = a.trainer._ready()
    assert set(read.params) == set(own.sent.params)
    assert all(torch.equal(read.params[name], own.sent.params[name]) for name in read.params)
    assert all(torch.equal(read.extras[name], own.sent.extras[name]) for name in read.extras)
    assert not all(torch.equal(read.params[n], own.trained.params[n]) for n in read.params)
    assert b.fault("a", ref) == ""
    manifest = map_snapshot(ref)[0]
    assert schema_digest(manifest.tensors) == a.prepared.coded == b.prepared.coded
    assert a.prepared.coded != a.prepared.schema


def test_a_coded_result_is_smaller_by_what_the_codec_saves(tmp_path: Path) -> None:
    sizes = {}
    for name, codec in zip("abc", ("fp32", "bf16", "int8"), strict=True):
        ref, _ = Pupil(tmp_path, name, **{"share.codec": codec}).play(1, [])
        sizes[codec] = Layout.of(map_snapshot(ref)[0].tensors).body_bytes
    assert sizes["bf16"] == pytest.approx(sizes["fp32"] / 2, rel=0.05)
    assert sizes["int8"] == pytest.approx(sizes["fp32"] / 4, rel=0.15)


@pytest.mark.parametrize("codec", ["fp32", "int8"])
def test_another_process_goes_on_with_what_the_others_read(tmp_path: Path, codec: str) -> None:
    a = Pupil(tmp_path, "a", **{"share.codec": codec, "method": "gossip"})
    b = Pupil(tmp_path, "b", **{"share.codec": codec, "method": "gossip"})
    from_b, _ = b.play(1, [])
    a.trainer.mix(Mix(1, 1, (), ()))
    a.trainer.train(Train(1), lambda _done, _planned: None)
    a.trainer.evaluate(Evaluate(1))
    memory = a.trainer.publish(Publish(1)).memory
    assert memory
    uninterrupted, _ = a.play(2, [from_b])
    a.trainer = Trainer()
    a.trainer.prepare(replace(a.order, memory=memory))
    resumed, _ = a.play(2, [from_b])
    assert resumed.digest == uninterrupted.digest


STEPPED = ("delta", "topk")


def stepped(folder: Path, codec: str, method: str = "gossip") -> tuple[Pupil, Pupil]:
    options: dict[str, Value] = {"share.codec": codec, "method": method, "run.rounds": 4}
    return Pupil(folder, "a", **options), Pupil(folder, "b", **options)


def step_of(pupil: Pupil) -> SnapshotRef:
    (step,) = (r for r in pupil.published.more if map_snapshot(r)[0].part is Kind.STEP)
    return step


def carried_out(base: SnapshotRef, step: SnapshotRef, result: SnapshotRef) -> bytes:
    """What a reader who holds `base` makes of the step: the body of `result`."""
    specs = map_snapshot(result)[0].tensors
    layout, moves = Layout.of(specs), map_snapshot(step)[0].tensors
    here, came = (memoryview(Path(ref.path).read_bytes())[ref.offset :] for ref in (base, step))
    into = bytearray(layout.body_bytes)
    for spec, move, place, at in zip(
        specs, moves, layout.places, Layout.of(moves).places, strict=True
    ):
        advance(
            spec,
            move,
            here[place.start : place.end],
            came[at.start : at.end],
            memoryview(into)[place.start : place.end],
        )
    return bytes(into)


@pytest.mark.parametrize("codec", STEPPED)
def test_each_result_but_the_first_is_published_with_the_step_to_it(
    tmp_path: Path, codec: str
) -> None:
    a, _ = stepped(tmp_path, codec)
    refs = [a.play(1, [])[0]]
    assert a.published.more == ()  # nobody holds anything yet
    trained = a.trainer._ready().trained.params
    first = map_snapshot(refs[0])[1]["params"]
    assert all(torch.equal(first[name], trained[name]) for name in first)
    for round_no in (2, 3):
        refs.append(a.play(round_no, [])[0])
        step = map_snapshot(step_of(a))[0]
        assert (step.base, step.round_no, step.sender) == (refs[-2].digest, round_no, "a")
        assert schema_digest(step.tensors) == a.prepared.stepped
        assert Layout.of(step.tensors).body_bytes < 0.35 * Path(refs[-1].path).stat().st_size
        body = Path(refs[-1].path).read_bytes()[refs[-1].offset :]
        assert carried_out(refs[-2], step_of(a), refs[-1]) == body
    assert schema_digest(map_snapshot(refs[-1])[0].tensors) == a.prepared.schema


@pytest.mark.parametrize("harm", ["gone", "cut short"])
def test_where_what_was_published_is_not_there_any_more_the_next_result_goes_out_whole(
    tmp_path: Path, harm: str
) -> None:
    a, _ = stepped(tmp_path, "delta")
    before = Path(a.play(1, [])[0].path)
    if harm == "gone":
        before.unlink()
    else:
        before.write_bytes(before.read_bytes()[:-4])
    ref, _ = a.play(2, [])
    assert a.published.more == ()
    trained = a.trainer._ready().trained.params
    public = map_snapshot(ref)[1]["params"]
    assert all(torch.equal(public[name], trained[name]) for name in public)
    a.play(3, [])
    assert map_snapshot(step_of(a))[0].base == ref.digest


@pytest.mark.parametrize("codec", STEPPED)
def test_steps_go_on_while_no_disk_takes_what_is_published_and_when_one_does_again(
    tmp_path: Path, codec: str
) -> None:
    a, _ = stepped(tmp_path, codec)
    a.play(1, [])
    folder = snapshot_folder(a.folder)
    shutil.rmtree(folder)
    folder.write_text("in the way")
    refs = [a.play(2, [])[0]]
    assert "cannot be written" in a.published.trouble
    for round_no in (3, 4):
        if round_no == 4:
            folder.unlink()
        refs.append(a.play(round_no, [])[0])
        assert bool(a.published.trouble) == (round_no == 3)
        assert map_snapshot(step_of(a))[0].base == refs[-2].digest
        body = Path(refs[-1].path).read_bytes()[refs[-1].offset :]
        assert carried_out(refs[-2], step_of(a), refs[-1]) == body


@pytest.mark.parametrize("codec", STEPPED)
def test_a_peer_keeps_its_own_result_whole_and_others_mix_what_was_published(
    tmp_path: Path, codec: str
) -> None:
    a, b = stepped(tmp_path, codec)
    refs = [(a.play(1, [])[0], b.play(1, [])[0])]
    refs.append((a.play(2, [refs[0][1]])[0], b.play(2, [refs[0][0]])[0]))
    own = a.trainer._ready().trained.params
    public = [read_contribution(ref).trained.params for ref in refs[1]]
    assert not all(torch.equal(own[name], public[0][name]) for name in own)
    a.trainer.mix(Mix(3, 1, (Part(refs[1][1], 1.0),), ()))
    start = a.trainer._ready().start.params
    for name, tensor in start.items():  # gossip: the mean of two
        mean = (own[name].double() + public[1][name].double()) / 2
        assert torch.allclose(tensor.double(), mean, atol=1e-6)


def test_with_a_common_model_a_peer_goes_on_from_what_all_others_have_of_it(
    tmp_path: Path,
) -> None:
    a, _ = stepped(tmp_path, "delta", "fedavg")
    a.play(1, [])
    ref, _ = a.play(2, [])
    own, public = a.trainer._ready(), map_snapshot(ref)[1]["params"]
    assert all(torch.equal(own.sent.params[name], public[name]) for name in public)
    assert not all(torch.equal(own.trained.params[name], public[name]) for name in public)


@pytest.mark.parametrize(
    ("codec", "method"), [("delta", "gossip"), ("topk", "gossip"), ("delta", "scaffold")]
)
def test_another_process_goes_on_from_the_replica_that_the_others_hold(
    tmp_path: Path, codec: str, method: str
) -> None:
    a, b = stepped(tmp_path, codec, method)
    from_b = [b.play(round_no, [])[0] for round_no in (1, 2)]
    a.play(1, [])
    a.play(2, [from_b[0]])
    before = a.published
    uninterrupted = a.play(3, [from_b[1]])[0]
    step = step_of(a)
    a.published = before
    a.restart()
    resumed = a.play(3, [from_b[1]])[0]
    assert resumed.digest == uninterrupted.digest
    assert step_of(a).digest == step.digest

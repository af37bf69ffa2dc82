"""The twin: what a peer would have alone, whatever its neighbours send."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from peer.exchange import Origin, read_contribution, write_contribution
from peer.options.fields import Value
from peer.solvers.base import Progress
from peer.twin import Twin
from peer.work import Alone, Evaluated, Mix, Publish, SnapshotRef, Train
from peer.work import Input as Part
from protocol.ids import PeerId
from tests.contracts.solver import restored
from tests.unit.training.classroom import RUN, Pupil

ON: dict[str, Value] = {"serve.never_worse": True}


def silent(done: int, planned: int) -> None:
    """A progress that nobody follows."""


def poison(path: Path, ref: SnapshotRef, round_no: int) -> SnapshotRef:
    """Noise of the layout and the size of what an honest neighbour sent."""
    honest = read_contribution(ref).trained
    draw = torch.Generator().manual_seed(round_no)
    noise = {n: torch.randn(t.shape, generator=draw) for n, t in honest.params.items()}
    origin = Origin(run=RUN, sender=PeerId("b"), round_no=round_no, base=b"", degree=1)
    return write_contribution(path, origin, replace(honest, params=noise))


def among_poisoners(folder: Path, rounds: int = 3, /, **options: Value) -> tuple[Pupil, Evaluated]:
    """A pupil whose only neighbour sends noise."""
    options = {"solver.epochs": 8, **options}
    pupil = Pupil(folder, "a", method="gossip", **options)
    ref, scores = pupil.play(1, [])
    for round_no in range(2, rounds + 1):
        bad = poison(folder / f"{round_no}.safetensors", ref, round_no - 1)
        ref, scores = pupil.play(round_no, [bad])
    return pupil, scores


def test_among_poisoners_the_twin_is_served(tmp_path: Path) -> None:
    pupil, scores = among_poisoners(tmp_path, **ON)
    assert scores.served == "twin"
    assert scores.own == scores.twin[0]
    assert scores.own.val_accuracy > scores.trained.val_accuracy
    with safe_open(pupil.folder / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["kinfolk"])["served"] == "twin"


def test_without_a_twin_a_peer_has_nothing_better_than_what_came_out(tmp_path: Path) -> None:
    _, scores = among_poisoners(tmp_path, **ON, **{"serve.twin": False})
    assert scores.twin == ()
    assert {c.name for c in scores.candidates} == {"mixed", "trained+mixed"}


def test_off_there_is_no_twin_and_what_is_trained_is_served(tmp_path: Path) -> None:
    pupil, scores = among_poisoners(tmp_path)
    assert (scores.served, scores.twin, scores.candidates) == ("trained", (), ())
    assert scores.own == scores.trained
    assert pupil.done.twin_seconds == 0.0


@pytest.mark.parametrize("preset", ["kinfolk", "fedavg", "ditto", "fedrod", "scaffold", "moon"])
def test_the_twin_is_the_model_that_would_be_trained_alone(tmp_path: Path, preset: str) -> None:
    pupils = [Pupil(tmp_path, name, method=preset, **ON) for name in "ab"]
    refs = {p.name: p.play(1, [])[0] for p in pupils}
    _, scores = pupils[0].play(2, [refs["b"]])
    alone = pupils[0].trainer.alone(Alone("same"), silent)
    assert scores.twin == (alone.score,)


def test_the_twin_of_a_model_with_running_statistics_has_its_own(tmp_path: Path) -> None:
    options: dict[str, Value] = {"model": "cnn", "model.norm": "batch", **ON}
    a, b = (Pupil(tmp_path, name, **options) for name in "ab")
    ref = b.play(1, [])[0]
    a.play(1, [])
    _, scores = a.play(2, [ref])
    assert scores.twin == (a.trainer.alone(Alone("same"), silent).score,)
    assert {c.name for c in scores.candidates} == {
        "mixed",
        "twin",
        "trained+mixed",
        "trained+twin",
    }


def test_what_is_shared_does_not_depend_on_what_is_served(tmp_path: Path) -> None:
    digests = []
    for folder, on in (("on", True), ("off", False)):
        (tmp_path / folder).mkdir()
        a, b = (Pupil(tmp_path / folder, n, **{"serve.never_worse": on}) for n in "ab")
        refs = [p.play(1, [])[0] for p in (a, b)]
        a.play(2, [refs[1]])
        digests.append(a.trainer.publish(Publish(2)).content)
    assert digests[0] == digests[1]


def test_two_runs_of_the_same_seed_serve_the_same(tmp_path: Path) -> None:
    found = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        pupil, scores = among_poisoners(tmp_path / folder, 2, **ON)
        found.append((replace(scores, seconds=0.0), load_file(pupil.folder / "model.safetensors")))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(found[1][1][name], t) for name, t in found[0][1].items())


def test_the_twins_progress_is_the_second_half_of_a_rounds_training(tmp_path: Path) -> None:
    pupil = Pupil(tmp_path, "a", **ON)
    pupil.trainer.mix(Mix(1, 0, tuple[Part, ...](), ()))
    seen: list[tuple[int, int]] = []
    tell: Progress = lambda done, planned: seen.append((done, planned))  # noqa: E731 - a test's ear
    done = pupil.trainer.train(Train(1), tell)
    assert seen == [(n, 2 * done.num_steps) for n in range(1, 2 * done.num_steps + 1)]
    assert done.twin_seconds > 0.0


def test_a_twin_that_diverges_stays_where_it_was(tmp_path: Path) -> None:
    wild: dict[str, Value] = {"solver": "sgd", "solver.lr": 1e6, "solver.epochs": 20, **ON}
    pupil = Pupil(tmp_path, "a", **wild)
    _, scores = pupil.play(1, [])
    assert scores.twin == (scores.mixed,)  # the initial model: nobody has moved


@pytest.mark.parametrize("preset", ["kinfolk", "ditto", "fedrod", "moon"])
def test_the_twins_state_survives_being_stored(tmp_path: Path, preset: str) -> None:
    bench = Pupil(tmp_path, "a", method=preset, **ON).trainer._ready().bench
    twin = Twin(bench.method.solver)
    _, state = twin.train(twin.init(bench.initial()), bench.task, 1, silent)
    _, one = twin.train(state, bench.task, 2, silent)
    _, two = twin.train(restored(state), bench.task, 2, silent)
    for group, params in one.items():
        assert all(torch.equal(two[group][name], t) for name, t in params.items())
    params, buffers = twin.serves(one)
    other, _ = twin.serves(restored(one))
    assert all(torch.equal(other[name], t) for name, t in params.items())
    assert buffers.keys() == bench.model.start.buffers.keys()


@pytest.mark.parametrize("preset", ["kinfolk", "fedavg", "ditto", "fedrod", "scaffold", "moon"])
def test_a_restarted_peer_goes_on_as_the_same_with_the_same_twin(
    tmp_path: Path, preset: str
) -> None:
    options: dict[str, Value] = {"model": "cnn", "model.norm": "batch", **ON}
    a, b = (Pupil(tmp_path, name, method=preset, **options) for name in "ab")
    a.play(1, [])
    refs = [b.play(1, [])[0]]
    published = a.published
    _, unbroken = a.play(2, refs)
    a.published = published
    a.restart()
    _, resumed = a.play(2, refs)
    assert resumed == unbroken
    assert resumed.twin

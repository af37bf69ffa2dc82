"""The families as presets: what leaves a peer, which pairs are refused, and that they learn."""

from pathlib import Path

import pytest
import torch

from peer.checkpoint import map_snapshot
from peer.data import load_shard
from peer.exchange import digest_of
from peer.options.fields import Value
from peer.options.recipe import expand, read
from peer.personal import load_personal
from protocol.errors import ConfigError
from tests.unit.training.classroom import Pupil

CLASSIFIER = {"head.weight", "head.bias"}
FAMILIES = ("fedrep", "fedrod", "fedproto", "fedcalm", "fedic")


@pytest.mark.parametrize("preset", ["fedrep", "fedcalm"])
def test_no_classifier_is_in_what_a_peer_serves(tmp_path: Path, preset: str) -> None:
    pupil = Pupil(tmp_path, "a", method=preset)
    ref, _ = pupil.play(1, [])
    _, sections = map_snapshot(ref)
    assert sections["params"]
    assert not CLASSIFIER & sections["params"].keys()
    assert not any(CLASSIFIER & {spec.name} for spec in pupil.prepared.shared)


def test_nothing_but_prototypes_is_in_what_a_peer_of_fedproto_serves(tmp_path: Path) -> None:
    ref, _ = Pupil(tmp_path, "a", method="fedproto").play(1, [])
    _, sections = map_snapshot(ref)
    assert {name: sorted(section) for name, section in sections.items() if section} == {
        "extras": ["counts", "prototypes"]
    }


@pytest.mark.parametrize("preset", FAMILIES)
def test_what_is_shared_has_the_layout_that_was_announced(tmp_path: Path, preset: str) -> None:
    pupil = Pupil(tmp_path, "a", method=preset)
    manifest, _ = map_snapshot(pupil.play(1, [])[0])
    announced = [(s.section, s.name, s.dtype, s.shape) for s in pupil.prepared.shared]
    assert [(s.section, s.name, s.dtype, s.shape) for s in manifest.tensors] == announced


def test_a_late_joiner_of_fedcalm_takes_its_first_step_from_where_it_began(tmp_path: Path) -> None:
    a, b = (Pupil(tmp_path, name, method="fedcalm") for name in "ab")
    ref, _ = a.play(1, [])
    b.play(2, [ref])
    learner = b.trainer._learner
    assert learner is not None
    began, opening = learner.mixer_state["origin"], learner.bench.model.start.params
    body = {name: tensor for name, tensor in began.items() if name not in CLASSIFIER}
    assert not any(torch.equal(tensor, opening[name]) for name, tensor in body.items())
    assert learner.base == digest_of(began)  # of the start that its training came from


def test_a_personal_model_can_be_used_whatever_filled_the_slots(tmp_path: Path) -> None:
    halves = {"method": "local", "mixer": "fedproto", "solver": "fedproto"}
    pupil = Pupil(tmp_path, "a", **halves)
    _, scores = pupil.play(1, [])
    score = load_personal(pupil.folder).evaluate(load_shard(pupil.shard), "test")
    assert score.accuracy == scores.own.test_accuracy


@pytest.mark.parametrize("preset", FAMILIES)
def test_a_late_joiner_begins_with_what_its_neighbours_share(tmp_path: Path, preset: str) -> None:
    a, b, c = (Pupil(tmp_path, name, method=preset) for name in "abc")
    refs = [p.play(1, [])[0] for p in (a, b)]
    ref, _ = c.play(2, refs)
    assert c.done.loss > 0.0
    a.play(2, [refs[1], ref])
    assert {w.sender for w in a.mixed.weights} <= {"a", "b", "c"}


@pytest.mark.parametrize("preset", FAMILIES)
def test_training_that_diverges_leaves_no_nan_behind(tmp_path: Path, preset: str) -> None:
    wild: dict[str, Value] = {"solver.lr": 1e6, "solver.epochs": 20}
    pupil = Pupil(tmp_path, "a", method=preset, **wild)
    ref, scores = pupil.play(1, [])
    assert pupil.done.loss == -1.0
    assert scores.served == "trained"
    _, sections = map_snapshot(ref)
    assert all(t.isfinite().all() for part in sections.values() for t in part.values())


def test_a_personal_model_is_served_by_fedrod(tmp_path: Path) -> None:
    _, scores = Pupil(tmp_path, "a", method="fedrod").play(1, [])
    assert scores.served == "personal"
    assert scores.own.val_loss < scores.trained.val_loss


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mixer": "fedproto", "solver": "sgd"}, "mixer = fedproto needs the mean features"),
        ({"mixer": "fedic", "solver": "fedproto"}, "mixer = fedic needs how far"),
        ({"mixer": "fedavg", "solver": "fedproto"}, "solver = fedproto needs features"),
        ({"mixer": "local", "solver": "fedic"}, "solver = fedic needs features"),
    ],
)
def test_a_half_without_its_other_half_is_refused(options: dict[str, Value], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        expand("local", options)
    assert refused.value.hint is not None
    assert "fedic" in refused.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"mixer": "fedrep", "solver": "sgd"},  # FedPer
        {"mixer": "fedc2i", "solver": "fedrod"},
        {"mixer": "fedcalm", "solver": "fedrep"},
        {"mixer": "fedproto", "solver": "fedic"},
    ],
)
def test_other_pairs_run(options: dict[str, Value]) -> None:
    recipe = read(expand("local", options))
    assert (recipe.mixer.name, recipe.solver.name) == (options["mixer"], options["solver"])


def test_a_reconstruction_is_called_one_wherever_it_is_listed() -> None:
    recipe = read(expand("fedic", {}))
    assert "FedIC (reconstruction)" in recipe.mixer.entry.summary
    assert "FedIC (reconstruction)" in recipe.solver.entry.summary

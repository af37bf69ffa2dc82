"""What an attacker shares, to be redone on paper; and that it keeps what it trained."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from peer.attacks import flip_labels, poison
from peer.examples import Examples
from peer.exchange import read_contribution
from peer.ledger import EVENTS, read_events
from peer.options.attack import ATTACKS, Attack
from peer.trainer import Trainer
from peer.work import Evaluate, Evaluated, Mix, Publish, Published, Train
from protocol.errors import ConfigError
from protocol.round import Start, Trained
from tests.unit.common.hamlet import Hamlet
from tests.unit.training.classroom import Pupil

START = Start({"w": torch.tensor([1.0, 2.0])}, {"mean": torch.tensor([5.0])})
TRAINED = Trained(
    params={"w": torch.tensor([1.5, 1.0])},
    buffers={"mean": torch.tensor([6.0])},
    extras={"c": torch.tensor([0.25]), "counts": torch.tensor([3])},
    personal={"w": torch.tensor([9.0, 9.0])},
    num_examples=4,
    num_steps=2,
)


def shared(text: str, seed: int = 0) -> Trained:
    return poison(TRAINED, START, Attack.parse(text), seed)


def test_signflip_goes_uphill_by_as_much_as_training_went_down() -> None:
    assert shared("signflip").params["w"].tolist() == [0.5, 3.0]
    assert shared("signflip:2").params["w"].tolist() == [0.0, 4.0]
    assert shared("signflip").extras["c"].tolist() == [-0.25]


def test_scale_goes_on_in_the_same_direction() -> None:
    assert shared("scale").params["w"].tolist() == [6.0, -8.0]  # 1 + 10 * 0.5, 2 - 10 * 1
    assert shared("scale:1").params["w"].tolist() == [1.5, 1.0]
    assert shared("scale:2").extras["c"].tolist() == [0.5]


def test_noise_is_as_long_as_the_tensor_it_hides() -> None:
    long = Trained(params={"w": torch.full((10_000,), 3.0)}, num_examples=1, num_steps=1)
    start = Start({"w": torch.zeros(10_000)})
    added = poison(long, start, Attack.parse("noise:0.5"), 0).params["w"] - 3.0
    assert added.mean().item() == pytest.approx(0.0, abs=0.05)  # 3.3 deviations
    assert added.std().item() == pytest.approx(1.5, rel=0.03)  # 0.5 * 3


def test_noise_is_its_seeds() -> None:
    assert torch.equal(shared("noise", 1).params["w"], shared("noise", 1).params["w"])
    assert not torch.equal(shared("noise", 1).params["w"], shared("noise", 2).params["w"])


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_leaves_alone_what_no_attack_is_for(name: str) -> None:
    before = TRAINED.params["w"].clone()
    sent = shared(name)
    assert sent.buffers is TRAINED.buffers
    assert sent.personal is TRAINED.personal
    assert sent.extras["counts"].tolist() == [3]
    assert (sent.num_examples, sent.num_steps) == (4, 2)
    assert torch.equal(TRAINED.params["w"], before)


def test_labels_are_mirrored() -> None:
    examples = Examples(torch.zeros(10, 1), torch.arange(10))
    assert flip_labels(examples, 10, 1.0, 0).targets.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    some = flip_labels(examples, 10, 0.3, 0).targets
    assert (some != examples.targets).sum().item() == 3
    assert examples.targets.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("signflp", "no attack 'signflp'.*did you mean signflip.*there are: labelflip, noise"),
        ("", "no attack ''"),
        (":1", "no attack ''"),
        ("scale:x", "what follows the colon must be a number.*as in scale:10.0"),
        ("scale:", "what follows the colon must be a number"),
        ("scale:nan", "strength nan cannot be used"),
        ("scale:inf", "strength inf cannot be used"),
        (
            "scale:-1",
            r"strength -1 cannot be used: its strength must be a number in \(0, 1000000\]",
        ),
        ("labelflip:1.5", r"must be a number in \(0, 1\].*share of the training labels"),
    ],
)
def test_an_attack_that_cannot_be_is_told(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Attack.parse(text)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_read_as_it_is_written(name: str) -> None:
    attack = Attack(name, 0.3)
    assert Attack.parse(str(attack)) == attack


# -- in a trainer ---------------------------------------------------------------------------------


def first_round(trainer: Trainer) -> tuple[Published, Evaluated]:
    """A round that ends with what a relay asks for."""
    trainer.mix(Mix(1, 0, (), ()))
    trainer.train(Train(1), lambda _done, _planned: None)
    scores = replace(trainer.evaluate(Evaluate(1, update=True)), seconds=0.0)
    return trainer.publish(Publish(1, update=True)), scores


def test_an_attacker_keeps_what_it_trained_and_shares_another(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    honest = Pupil(tmp_path, "a")
    attacker = Pupil(tmp_path / "x", "a", attack="signflip")
    (one, own), (two, its_own) = (first_round(p.trainer) for p in (honest, attacker))
    good, bad = (read_contribution(ref.snapshot).trained.params for ref in (one, two))
    up, down = (read_contribution(done.more[0]).trained.params for done in (one, two))
    for name in good:
        assert torch.allclose(up[name], -down[name], atol=1e-6)  # start minus trained, reversed
        assert torch.allclose(good[name] + up[name], bad[name] + down[name], atol=1e-6)  # the start
    assert own == its_own  # the model that it serves to its own user


def test_flipped_labels_are_trained_on_and_reported(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    honest = Pupil(tmp_path, "a")
    attacker = Pupil(tmp_path / "x", "a", attack="labelflip")
    assert attacker.prepared.class_counts == honest.prepared.class_counts[::-1]


def test_an_attacker_is_told_plainly_and_its_common_model_stays_common(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "fedavg", 3, **{"attack.c": "signflip:0.5"})
    hamlet.play()
    assert set(hamlet.starts().values()) == {"abc"}  # nobody disagrees with anybody
    started: dict[str, Any] = {}
    for name in "abc":
        path = tmp_path / "runs" / name
        (event,) = [e for e in read_events(path / EVENTS) if e.name == "started"]
        started[name] = event.fields["attack"]
        assert json.loads((path / "summary.json").read_text())["attack"] == (started[name] or "")
    assert started == {"a": None, "b": None, "c": "signflip:0.5"}

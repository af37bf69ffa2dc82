"""A personal model is rebuilt from its file alone, and what does not fit is told in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from peer.checkpoint import write_model
from peer.cli.evaluate import evaluate
from peer.data import Shard, Split, load_shard
from peer.data.card import Card
from peer.data.shard import save_shard
from peer.models.registry import build_model
from peer.personal import load_personal
from peer.settings import complete
from protocol.errors import DataError, ModelError

CLASSES = ("no", "yes")


def card(**changed: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "peer": "a",
        "round": 3,
        "served": "trained",
        "model": "mlp",
        "norm": "group",
        "input_shape": [1, 2, 2],
        "classes": list(CLASSES),
        "domain": "d",
        "transform": {"scale": 1.0, "mean": [0.0], "std": [1.0]},
        "options": dict(complete({"method": "local"})),
    }
    return {**plain, **changed}


def always_yes() -> dict[str, Tensor]:
    """Numbers of an mlp that says yes whatever it sees, by a margin of 2."""
    start = build_model("mlp", (1, 2, 2), 2, "group", seed=0).start
    zeros = {name: torch.zeros_like(tensor) for name, tensor in start.params.items()}
    return {**zeros, "head.bias": torch.tensor([0.0, 2.0])}


def write(
    path: Path, tensors: dict[str, Tensor] | None = None, changed: dict[str, object] | None = None
) -> Path:
    path.mkdir(exist_ok=True)
    metadata = {"kinfolk": json.dumps(card(**(changed or {})))}
    write_model(path / "model.safetensors", tensors or always_yes(), metadata)
    return path


def split(*labels: int, side: int = 2) -> Split:
    images = np.zeros((len(labels), side, side, 1), np.uint8)
    return Split(images, np.array(labels, np.int64))


def shard(path: Path, *, classes: tuple[str, ...] = CLASSES, side: int = 2) -> Path:
    splits = {
        "train": split(0, side=side),
        "val": Split(split(0, side=side).x[:0], np.zeros(0, np.int64)),
        "test": split(0, 1, 1, 1, side=side),
    }
    save_shard(path, Card(domain="d", classes=classes), splits)
    return path


def loaded(path: Path, **how: Any) -> Shard:
    return load_shard(shard(path, **how))


def test_a_model_from_its_file_gives_its_accuracy(tmp_path: Path) -> None:
    personal = load_personal(write(tmp_path / "a"))
    score = personal.evaluate(loaded(tmp_path / "s.npz"), "test")
    assert score.accuracy == 0.75  # three of four are yes
    assert score.class_accuracy == (0.0, 1.0)
    no, yes = np.log1p(np.exp(2.0)), np.log1p(np.exp(-2.0))
    assert score.loss == pytest.approx((no + 3 * yes) / 4)
    assert (personal.peer, personal.round_no) == ("a", 3)


def test_the_command_prints_json_and_a_table(tmp_path: Path) -> None:
    argv = [str(write(tmp_path / "a")), "--data", str(shard(tmp_path / "s.npz"))]
    answer = json.loads(CliRunner().invoke(evaluate, [*argv, "--json"]).stdout)
    assert (answer["accuracy"], answer["samples"]) == (0.75, 4)
    assert answer["class_accuracy"] == {"no": 0.0, "yes": 1.0}
    shown = CliRunner().invoke(evaluate, argv).stdout
    assert "accuracy 75.0%" in shown
    assert [line.split() for line in shown.splitlines() if line.startswith(" yes")] == [
        ["yes", "3", "100.0%"]
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"peer": 7}, "peer is 7, must be a str"),
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"model": "nlp"}, "no model 'nlp'"),
        ({"input_shape": [1, 3, 3]}, r"body.1.weight is torch.float32 of \(200, 4\)"),
        ({"classes": ["one"]}, "at least 2 classes"),
        ({"model": "os:system"}, "built by the code os:system.*give --model os:system"),
        ({"options": {"method": "sorcery"}}, "no preset 'sorcery'"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(
    changed: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        load_personal(write(tmp_path / "a", changed=changed))
    assert "model.safetensors" in str(caught.value)


def test_tensors_of_another_model_are_refused(tmp_path: Path) -> None:
    tensors = always_yes()
    tensors["head.extra"] = tensors.pop("head.bias")
    with pytest.raises(ModelError, match=r"not those of mlp: head\.bias, head\.extra"):
        load_personal(write(tmp_path / "a", tensors))


def test_files_that_are_no_personal_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not there - give a peer's folder"):
        load_personal(tmp_path)
    (tmp_path / "torn.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match="cannot be read"):
        load_personal(tmp_path / "torn.safetensors")
    write_model(tmp_path / "other.safetensors", always_yes(), {"format": "pt"})
    with pytest.raises(ModelError, match="no card of Kinfolk's"):
        load_personal(tmp_path / "other.safetensors")


def test_a_shard_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    personal = load_personal(write(tmp_path / "a"))
    with pytest.raises(DataError, match="inputs of 1x3x3, the model of a takes 1x2x2"):
        personal.evaluate(loaded(tmp_path / "s3.npz", side=3), "test")
    with pytest.raises(DataError, match="classes x, y, the model of a knows no, yes"):
        personal.evaluate(loaded(tmp_path / "xy.npz", classes=("x", "y")), "test")
    with pytest.raises(DataError, match="the val split of s is empty"):
        personal.evaluate(loaded(tmp_path / "s.npz"), "val")

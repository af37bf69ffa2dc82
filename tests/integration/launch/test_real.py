"""`peer launch` and `peer eval` as typed, with the real coordinator and real peers."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from peer.data.card import Card
from peer.data.shard import Split, save_shard
from peer.ledger import read_events
from tests import typed

TIMEOUT_S = 110.0  # for what takes ten seconds on a quiet machine

peer = partial(typed.peer, within_s=TIMEOUT_S)


def split(rng: np.random.Generator, num_samples: int) -> Split:
    """Bright images are of class 1, dark ones of class 0."""
    labels = np.arange(num_samples) % 2
    images = rng.integers(0, 100, (num_samples, 4, 4, 1)) + 150 * labels[:, None, None, None]
    return Split(images.astype(np.uint8), labels.astype(np.int64))


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a small experiment has run."""
    folder = tmp_path_factory.mktemp("launched")
    rng = np.random.default_rng(0)
    (folder / "shards").mkdir()
    for number in range(3):
        splits = {name: split(rng, 16) for name in ("train", "val", "test")}
        path = folder / "shards" / f"s{number}.npz"
        save_shard(path, Card(domain="light", classes=("dark", "bright")), splits)
    (folder / "tiny.toml").write_text(
        '[run]\nrounds = 2\n[model]\nname = "mlp"\n[pace]\nquorum = 1.0\n[compare]\nalone = true\n'
        '[data]\nshards = "shards"\n' + "".join(f'[[peer]]\ndata = "s{n}"\n' for n in range(3))
    )
    done = peer("launch", "tiny.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "helped" in done.stdout
    return folder


def test_every_peer_finishes_every_round_and_tells_its_accuracies(launched: Path) -> None:
    result = json.loads((launched / "runs" / "tiny" / "result.json").read_text())
    assert (result["run"], result["preset"], result["rounds"]) == ("tiny", "kinfolk", 2)
    assert [row["id"] for row in result["peers"]] == ["s0", "s1", "s2"]
    for row in result["peers"]:
        assert (row["rounds_finished"], row["rounds_degraded"], row["samples"]) == (2, 0, 16)
        assert row["helped_most_by"] in {"s0", "s1", "s2"} - {row["id"]}
        assert all(0.0 <= row[key] <= 1.0 for key in row if key.endswith("_accuracy"))


def test_pictures_and_events_are_left_and_keys_are_not(launched: Path) -> None:
    root = launched / "runs" / "tiny"
    assert {path.name for path in root.iterdir()} == {
        "curves.png",
        "experiment.toml",
        "influence.png",
        "launch.log",
        "result.json",
        "s0",
        "s1",
        "s2",
    }
    rounds = [event for event in read_events(root / "s0" / "events.jsonl") if event.name == "round"]
    assert [event.fields["used"] for event in rounds] == [{}, {"s1": 1, "s2": 1}]


def test_eval_gives_the_accuracy_that_the_peer_gave_itself(launched: Path) -> None:
    summary = json.loads((launched / "runs" / "tiny" / "s1" / "summary.json").read_text())
    done = peer("eval", "runs/tiny/s1", "--data", "s1", "--json", cwd=launched)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] == summary["own_accuracy"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("launch", "none.toml"), "none.toml cannot be read: No such file"),
        (("launch", "tiny.toml"), "holds the results of a run"),
        (("eval", "runs/tiny/s9", "--data", "s1"), "is not there"),
        (("eval", "runs/tiny/s1", "--data", "s9"), "no shard 's9'"),
    ],
)
def test_a_mistake_is_one_line_and_code_two(
    argv: tuple[str, ...], said: str, launched: Path
) -> None:
    done = peer(*argv, cwd=launched)
    assert done.returncode == 2
    first, *hints = done.stderr.splitlines()
    assert first.startswith("Error: ")
    assert said in first
    assert len(hints) <= 1

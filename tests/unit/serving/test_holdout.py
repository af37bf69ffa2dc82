"""A shard without a validation split gives up the same samples, whatever the method."""

from pathlib import Path

import numpy as np
import pytest
import torch

from peer.data.card import Card
from peer.data.holdout import held_out, with_validation
from peer.data.shard import Shard, Split, load_shard
from peer.options.fields import Value
from tests.unit.training.classroom import Pupil, write_digits


def bare(num: int = 40) -> Shard:
    """A shard of two classes with nothing to validate on."""
    x = np.arange(num, dtype=np.float32).reshape(num, 1, 1, 1)
    y = (np.arange(num) % 4 == 0).astype(np.int64)
    none = Split(x[:0], y[:0])
    return Shard("s", Card(domain="d", classes=("a", "b")), Split(x, y), none, none)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_each_class_and_all_together_give_their_share(share: float, seed: int) -> None:
    labels = np.array([0] * 25 + [1] * 9 + [2] * 2)
    rows = held_out(labels, share, seed)
    assert len(rows) in (int(share * 36), int(share * 36) + 1)
    for of, count in ((0, 25), (1, 9), (2, 2)):
        exact = share * count
        assert abs((labels[rows] == of).sum() - exact) < 1.0


def test_a_class_with_a_single_sample_keeps_it() -> None:
    labels = np.array([0, 1, 1, 1, 1, 2])
    assert all(labels[row] == 1 for seed in range(50) for row in held_out(labels, 0.5, seed))


def test_equal_seeds_draw_equal_rows_and_others_do_not() -> None:
    labels = np.arange(200) % 10
    assert np.array_equal(held_out(labels, 0.1, 3), held_out(labels, 0.1, 3))
    assert not np.array_equal(held_out(labels, 0.1, 3), held_out(labels, 0.1, 4))


def test_no_sample_is_in_both_splits_and_none_is_lost() -> None:
    shard = with_validation(bare(), 0.1, 0)
    train, val = (set(part.x.ravel().tolist()) for part in (shard.train, shard.val))
    assert train | val == set(range(40))
    assert not train & val
    assert len(val) == 4


def test_nothing_is_taken_where_nothing_is_asked_for() -> None:
    shard = with_validation(bare(), 0.0, 0)
    assert (len(shard.train), len(shard.val)) == (40, 0)


def test_a_shard_that_can_validate_stays_as_it_is(tmp_path: Path) -> None:
    shard = load_shard(write_digits(tmp_path / "s.npz", first=0, num=64))
    assert with_validation(shard, 0.5, 0) is shard


def test_methods_that_are_compared_train_on_the_same_samples(tmp_path: Path) -> None:
    options: list[dict[str, Value]] = [
        {"method": "kinfolk"},
        {"method": "fedavg"},
        {"method": "local", "serve.never_worse": True, "serve.twin": False},
    ]
    tasks = []
    for number, option in enumerate(options):
        (folder := tmp_path / str(number)).mkdir()
        pupil = Pupil(folder, "a", 0, **option)
        prepared = pupil.prepared
        assert (prepared.num_examples, prepared.num_validation) == (58, 6)
        assert prepared.num_held_out == 6
        tasks.append(pupil.trainer._ready().bench.task.examples)
    for other in tasks[1:]:
        assert torch.equal(other.inputs, tasks[0].inputs)
        assert torch.equal(other.targets, tasks[0].targets)


def test_without_a_validation_sample_what_is_trained_is_served(tmp_path: Path) -> None:
    options: dict[str, Value] = {"train.holdout": 0.0, "serve.never_worse": True}
    pupil = Pupil(tmp_path, "a", 0, **options)
    _, scores = pupil.play(1, [])
    assert (pupil.prepared.num_examples, pupil.prepared.num_held_out) == (64, 0)
    assert (scores.served, scores.twin, scores.candidates) == ("trained", (), ())
    assert scores.own.val_accuracy == -1.0

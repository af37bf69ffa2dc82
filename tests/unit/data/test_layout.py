"""Which arrays of a person's own `.npz` are taken for what."""

from pathlib import Path

import numpy as np
import pytest

from peer.data import load_shard, shard_facts
from protocol.errors import DataError
from tests.unit.data.makers import first_pixels


def own_file(tmp_path: Path, **arrays: object) -> Path:
    np.savez(tmp_path / "own.npz", **arrays)  # type: ignore[arg-type]
    return tmp_path / "own.npz"


def images(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint8)[:, None, None] * np.ones((4, 5), np.uint8)


def test_one_pair_is_split_7_to_1_to_2_within_each_class(tmp_path: Path) -> None:
    path = own_file(tmp_path, x=images(30), y=np.repeat([0, 1], [10, 20]))
    shard = load_shard(path)
    assert shard.counts("train") == (7, 14)
    assert shard.counts("val") == (1, 2)
    assert shard.counts("test") == (2, 4)
    seen = [pixel for part in (shard.train, shard.val, shard.test) for pixel in first_pixels(part)]
    assert sorted(seen) == list(range(30))
    assert (shard.domain, shard.classes) == ("own", ("0", "1"))
    assert shard_facts(path).counts["val"] == (1, 2)
    assert shard_facts(path).input_shape == (1, 4, 5)


def test_a_single_sample_goes_to_training(tmp_path: Path) -> None:
    shard = load_shard(own_file(tmp_path, x=images(1), y=np.array([1])))
    assert [shard.counts(s) for s in ("train", "val", "test")] == [(0, 1), (0, 0), (0, 0)]


@pytest.mark.parametrize(("x", "y"), [("x_{}", "y_{}"), ("{}_x", "{}_y")])
def test_a_named_test_split_is_kept_and_validation_is_cut_from_training(
    tmp_path: Path, x: str, y: str
) -> None:
    arrays = {
        x.format("train"): images(10),
        y.format("train"): np.zeros(10, np.uint8),
        x.format("test"): images(3),
        y.format("test"): np.zeros(3, np.uint8),
        "classes": np.array(["cat", "dog"]),
    }
    shard = load_shard(own_file(tmp_path, **arrays))
    assert [shard.counts(s) for s in ("train", "val", "test")] == [(9, 0), (1, 0), (3, 0)]
    assert shard.classes == ("cat", "dog")


def test_floats_are_taken_as_they_are_and_channels_first_is_seen(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3, 6, 5))
    shard = load_shard(own_file(tmp_path, x=x, y=np.arange(4)))
    assert shard.input_shape == (3, 6, 5)
    np.testing.assert_allclose(shard.train.x, x, rtol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"a": images(2)}, "holds a - a shard needs x_train and y_train, or x and y"),
        ({"x": images(2)}, "only one of x and y"),
        ({"x_test": images(2), "y_test": np.zeros(2, int)}, "a shard needs x_train"),
        (
            {
                "x": images(2),
                "y": np.zeros(2, int),
                "x_train": images(2),
                "y_train": np.zeros(2, int),
            },
            "which one is meant",
        ),
        ({"x": np.zeros((2, 3, 4, 3), np.uint8), "y": np.zeros(2, int)}, "no doubt which"),
        ({"x": np.zeros((2, 8), np.uint8), "y": np.zeros(2, int)}, "no doubt which"),
        ({"x": images(2), "y": np.array([0.0, 1.0])}, "must be integers"),
        ({"x": images(2), "y": np.array([0, 1]), "classes": np.array(["a"])}, "allowed are 0 to 0"),
        ({"x": images(2), "y": np.array([0, 1]), "classes": np.arange(2)}, "different texts"),
        ({"x": images(2), "y": np.array([0, 10**9])}, "has label"),
        ({"x": images(3), "y": np.array([0, 1])}, "3 samples and y 2 labels"),
        ({"x": images(0), "y": np.zeros(0, int)}, "no training sample"),
        ({"x": np.full((2, 4, 4), np.nan), "y": np.array([0, 1])}, "NaN"),
        ({"x": np.full((2, 4, 4), 1e300), "y": np.array([0, 1])}, "NaN or infinite"),
        ({"x": np.zeros((2, 4, 4), int), "y": np.array([0, 1])}, "must be uint8 or float"),
    ],
)
def test_what_is_not_plainly_meant_is_refused(
    tmp_path: Path, arrays: dict[str, object], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        load_shard(own_file(tmp_path, **arrays))

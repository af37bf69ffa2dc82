"""Shards: read, refused, found."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.data import find_shard, load_shard, shard_facts
from peer.data.archive import Array
from peer.data.card import Card, Transform
from peer.data.shard import Split, save_shard
from protocol.errors import DataError
from tests.unit.data.makers import CARD, repacked, shard, split


def test_a_shard_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = shard(tmp_path / "s.npz")
    read = load_shard(tmp_path / "s.npz")
    assert (read.name, read.domain, read.classes, read.camp) == ("s", "shapes", ("a", "b"), 0)
    assert read.digest == written.digest
    assert len(read.digest) == 64
    assert read.input_shape == (3, 2, 3)
    assert read.train.x.shape == (3, 3, 2, 3)
    assert read.train.x.dtype == np.float32
    assert read.train.x.flags.c_contiguous
    assert read.train.y.dtype == np.int64
    assert [len(part) for part in (read.train, read.val, read.test)] == [3, 0, 1]
    assert read.counts("train") == (1, 2)


def test_pixels_are_scaled_by_the_declared_transform(tmp_path: Path) -> None:
    shard(tmp_path / "s.npz")
    first = load_shard(tmp_path / "s.npz").train.x[:, 0, 0, 0]  # stored as 0, 1, 2
    np.testing.assert_allclose(first, [-1.0, 2 / 255 - 1, 4 / 255 - 1], atol=1e-6)


def test_a_transform_is_per_channel() -> None:
    transform = Transform(scale=0.5, mean=(1.0, 2.0), std=(1.0, 4.0))
    stored = np.array([[[[4, 12]]]], np.uint8)  # one pixel of two channels
    x = transform.apply(stored)
    assert x[:, :, 0, 0].tolist() == [[1.0, 1.0]]  # (4/2 - 1) / 1 and (12/2 - 2) / 4
    with pytest.raises(DataError, match="does not fit 3 channels"):
        transform.apply(np.zeros((1, 1, 1, 3), np.uint8))


@pytest.mark.parametrize(
    "wrong", [{"std": (0.0,)}, {"scale": 0.0}, {"mean": ()}, {"mean": (float("inf"),)}]
)
def test_a_transform_that_cannot_be_undone_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="a transform"):
        Transform(**wrong)


def test_facts_tell_the_same_without_the_images(tmp_path: Path) -> None:
    shard(tmp_path / "s.npz")
    facts, read = shard_facts(tmp_path / "s.npz"), load_shard(tmp_path / "s.npz")
    assert facts.card == read.card
    assert facts.input_shape == read.input_shape
    assert facts.counts == {s: read.counts(s) for s in ("train", "val", "test")}
    assert facts.num_samples("train") == 3


def test_equal_content_gives_equal_bytes_and_other_content_another_digest(tmp_path: Path) -> None:
    one, two = shard(tmp_path / "1.npz"), shard(tmp_path / "2.npz")
    other = shard(tmp_path / "3.npz", Card(domain="shapes", classes=("a", "c")))
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    assert one.digest == two.digest != other.digest


def test_one_training_sample_is_enough(tmp_path: Path) -> None:
    save_shard(tmp_path / "s.npz", CARD, {"train": split(1), "val": split(), "test": split()})
    assert load_shard(tmp_path / "s.npz").counts("train") == (0, 1)


X = np.zeros((3, 2, 3, 3), np.uint8)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"x_val": None}, "no x_val: a split is missing"),
        ({"y_test": None}, "no y_test: a split is missing"),
        ({"x_train": X[:0], "y_train": np.zeros(0, int)}, "is empty"),
        ({"y_train": np.array([0, 1, 2])}, r"label 2, allowed are 0 to 1 \(2 classes\)"),
        ({"y_train": np.array([0, -1, 1])}, "label -1"),
        ({"y_train": np.array([0.0, 1.0, 1.0])}, "must be integers"),
        ({"y_train": np.zeros((3, 2), int)}, "must be integers of shape"),
        ({"y_train": np.array([0, 1])}, "3 samples and y_train 2 labels"),
        ({"x_train": X[..., 0]}, r"must be uint8 or float32 of \(N, H, W, C\)"),
        ({"x_train": X.astype(np.int32)}, "int32"),
        ({"x_test": X[:1, :1]}, r"has images \(1, 3, 3\), train has \(2, 3, 3\)"),
        ({"x_train": np.full(X.shape, np.nan, np.float32)}, "NaN or infinite pixels in 3 of 3"),
        ({"x_train": X + 1}, "it was changed after it was made"),
        ({"kinfolk": np.array("{}")}, "card is of format and version"),
        ({"kinfolk": np.array("{")}, "not JSON"),
        ({"kinfolk": np.arange(3)}, "not one text"),
        ({"kinfolk": np.array(CARD.text().replace('"camp": 0', '"camp": true'))}, "camp is True"),
        ({"kinfolk": np.array(CARD.text().replace('"camp"', '"kamp"'))}, "no 'camp'"),
        ({"kinfolk": np.array(CARD.text().replace('"version": 1', '"version": 2'))}, "version"),
        ({"kinfolk": np.array(CARD.text().replace("[0.5]", "[NaN]"))}, "must be finite"),
        ({"kinfolk": np.array(CARD.text().replace("[0, 1]", "[1, 1]"))}, "not an order"),
    ],
)
def test_a_broken_shard_is_refused_in_one_line(
    tmp_path: Path, changed: dict[str, Array | bytes | None], complaint: str
) -> None:
    shard(tmp_path / "s.npz")
    with pytest.raises(DataError, match=complaint) as caught:
        load_shard(repacked(tmp_path / "s.npz", **changed))
    assert "s.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_would_be_refused_is_not_written(tmp_path: Path) -> None:
    good = split(0, 1)
    for broken in (
        Split(good.x.astype(np.int64), good.y),
        Split(good.x[:1], good.y),
        Split(np.full(good.x.shape, np.inf), good.y),
        Split(good.x, good.y + 1),
    ):
        with pytest.raises(DataError):
            save_shard(tmp_path / "s.npz", CARD, {"train": broken, "val": split(), "test": split()})
    with pytest.raises(DataError, match="splits are"):
        save_shard(tmp_path / "s.npz", CARD, {"train": good})
    assert not list(tmp_path.iterdir())


def test_a_shard_is_found_by_path_by_name_and_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("shards", "mine", "elsewhere"):
        (tmp_path / folder).mkdir()
    shard(Path("shards/shard3.npz"))
    shard(Path("mine/own.npz"))
    shard(Path("elsewhere/far.npz"))
    monkeypatch.setenv("KINFOLK_DATA", str(tmp_path / "elsewhere"))
    assert find_shard("shard3") == Path("shards/shard3.npz")
    assert find_shard("mine/own.npz") == find_shard("mine/own") == Path("mine/own.npz")
    assert find_shard("far") == tmp_path / "elsewhere" / "far.npz"


def test_a_missing_shard_names_the_shards_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KINFOLK_DATA", raising=False)
    with pytest.raises(DataError, match="there are: none - make some: peer data make"):
        find_shard("shard9")
    (tmp_path / "shards").mkdir()
    for number in (10, 2):
        shard(tmp_path / "shards" / f"shard{number}.npz")
    with pytest.raises(DataError, match=r"there are: shards/shard2\.npz, shards/shard10\.npz"):
        find_shard("shard9")
    with pytest.raises(DataError, match=r"there are: shards/shard2\.npz"):
        find_shard("shards")

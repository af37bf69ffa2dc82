"""Which arrays of an `.npz` are which split, for our shards and for any person's file.

Names: `x_train y_train x_val y_val x_test y_test`, or `train_x train_y ...`, or one pair `x y`.
What a person's file does not split is split here, the same on every machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peer.data.archive import Archive, Array
from peer.data.card import MAX_CLASSES, SPLITS
from protocol.errors import DataError

__all__ = ["Part", "Rows", "as_images", "checked_labels", "class_names", "pairs", "parts"]

Rows = npt.NDArray[np.int64]

VAL_IN_100 = 10  # of each class, where a person's file has no validation split
TEST_IN_100 = 20  # of each class, where it has no test split


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Where one split lies: a pair of arrays, and which rows of them (None is all)."""

    x: str
    y: str
    rows: Rows | None = None


def pairs(archive: Archive, prefix: str = "") -> dict[str, tuple[str, str]]:
    """Find the (x, y) names of each split present; the key "" is an unsplit pair.

    A prefix is a domain's name: with `amazon`, the pair `amazon_x` and `amazon_y` is the unsplit
    pair when it is there.

    Raises:
        DataError: half of a pair is missing, or two spellings of one split are there.
    """
    own = (f"{prefix}_x", f"{prefix}_y")
    if prefix and own[0] in archive and own[1] in archive:
        return {"": own}
    found: dict[str, tuple[str, str]] = {}
    for split in ("", *SPLITS):
        spellings = [(f"x_{split}", f"y_{split}"), (f"{split}_x", f"{split}_y")]
        for x, y in spellings if split else [("x", "y")]:
            if (x in archive) != (y in archive):
                raise DataError(f"{archive.path} holds only one of {x} and {y}")
            if x in archive and split in found:
                raise DataError(f"{archive.path} holds both {found[split][0]} and {x}")
            if x in archive:
                found[split] = (x, y)
    if "" in found and len(found) > 1:
        raise DataError(f"{archive.path} holds both x, y and named splits: which one is meant?")
    return found


def parts(archive: Archive) -> Mapping[str, Part]:
    """Say where train, val and test of a person's file lie.

    Raises:
        DataError: there is nothing to train on, or a name is ambiguous.
    """
    found = pairs(archive)
    whole = found.get("train") or found.get("")  # the pair that missing splits are cut from
    if whole is None:
        raise DataError(
            f"{archive.path} holds {', '.join(archive.names) or 'nothing'}",
            hint="a shard needs x_train and y_train, or x and y",
        )
    missing = [split for split in SPLITS[1:] if split not in found]
    y = checked_labels(archive.array(whole[1]), MAX_CLASSES, f"{archive.path}: {whole[1]}")
    rows = carve(y, missing) if missing else {}
    return {split: Part(*found.get(split, whole), rows.get(split)) for split in SPLITS}


def carve(y: Rows, missing: list[str]) -> dict[str, Rows]:
    """Split rows of each class by fixed shares, shuffled by a fixed seed.

    Returns:
        Sorted rows of "train" and of each split in `missing`; of a class with fewer than 5
        samples nothing is held out for test, with fewer than 10 nothing for val.
    """
    shares = {"val": VAL_IN_100, "test": TEST_IN_100}
    rng = np.random.default_rng(0)
    kept: dict[str, list[Rows]] = {"train": [], **{split: [] for split in missing}}
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    _, sizes = np.unique(y, return_counts=True)
    for rows in np.split(order, np.cumsum(sizes)[:-1]):
        start = 0
        for split in missing:
            count = len(rows) * shares[split] // 100
            kept[split].append(rows[start : start + count])
            start += count
        kept["train"].append(rows[start:])
    return {split: np.sort(np.concatenate(found)) for split, found in kept.items()}


def as_images(x: Array, where: str) -> Array:
    """View a person's images as (N, H, W, C).

    Taken are (N, H, W), (N, H, W, C) and (N, C, H, W) with C of 1 or 3.

    Raises:
        DataError: another shape, one that fits both orders, or a dtype that is not uint8 or float.
    """
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataError(f"{where} is of {x.dtype}, must be uint8 or float")
    if x.ndim == 3:
        return x[..., None]
    if x.ndim == 4:
        is_last, is_first = x.shape[3] in (1, 3), x.shape[1] in (1, 3)
        if is_last != is_first:
            return x if is_last else x.transpose(0, 2, 3, 1)
    raise DataError(
        f"{where} has shape {x.shape}, must be (N, H, W), (N, H, W, C) or (N, C, H, W) "
        "with C of 1 or 3, and no doubt which"
    )


def checked_labels(y: Array, num_classes: int, where: str) -> Rows:
    """Check that labels are integers in [0, num_classes), one axis; return them as int64.

    Raises:
        DataError: another dtype or shape, or a label out of range.
    """
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"{where} is {y.dtype} of shape {y.shape}, must be integers of shape (N,)")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
        seen = y.min() if y.min() < 0 else y.max()
        raise DataError(
            f"{where} has label {seen}, allowed are 0 to {num_classes - 1} ({num_classes} classes)"
        )
    return y.astype(np.int64)


def class_names(archive: Archive, labels: list[Array]) -> tuple[str, ...]:
    """Read the names of classes from `classes`, or number them 0 to the largest label.

    Raises:
        DataError: `classes` is not a list of different texts, or there are too many classes.
    """
    if "classes" in archive:
        names = archive.array("classes")
        if names.dtype.kind != "U" or names.ndim != 1 or len(set(names.tolist())) != len(names):
            raise DataError(f"{archive.path}: classes must be one axis of different texts")
        return tuple(names.tolist())
    top = max((int(y.max()) for y in labels if y.dtype.kind in "iu" and y.size), default=0)
    if top >= MAX_CLASSES:
        raise DataError(f"{archive.path} has label {top}, at most {MAX_CLASSES} classes are read")
    return tuple(str(number) for number in range(top + 1))

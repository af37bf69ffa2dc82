"""One peer's data: a shard, and how it is found, read, checked and written. No torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from peer.data.archive import Archive, Array, opened, write_archive
from peer.data.card import BYTES_AROUND_ZERO, MAX_CHANNELS, SPLITS, Card, Transform, parse_card
from peer.data.layout import Part, Rows, as_images, checked_labels, class_names, parts
from protocol.errors import DataError

__all__ = [
    "CARD",
    "Shard",
    "ShardFacts",
    "Split",
    "find_shard",
    "load_shard",
    "read_stored",
    "save_shard",
    "shard_facts",
]

CARD = "kinfolk"  # the array that makes a file one of ours
DATA_FOLDER = "KINFOLK_DATA"  # environment variable
MAX_SIDE = 4096  # pixels


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Samples in a row: x is (N, C, H, W) float32, or as stored (N, H, W, C); y is (N,)."""

    x: npt.NDArray[Any]
    y: Rows

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A peer's data, ready for training: pixels transformed, labels int64 in [0, classes)."""

    name: str
    card: Card
    train: Split
    val: Split
    test: Split

    @property
    def domain(self) -> str:
        return self.card.domain

    @property
    def classes(self) -> tuple[str, ...]:
        return self.card.classes

    @property
    def camp(self) -> int:
        return self.card.camp

    @property
    def digest(self) -> str:
        return self.card.digest

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample."""
        _, channels, height, width = self.train.x.shape
        return channels, height, width

    def counts(self, split: str) -> tuple[int, ...]:
        """Count the samples of each class in "train", "val" or "test"."""
        part: Split = getattr(self, split)
        return _counts(part.y, len(self.classes))


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What can be said of a shard without reading its images; nothing of it is verified."""

    name: str
    path: Path
    card: Card
    input_shape: tuple[int, int, int]  # (C, H, W)
    counts: Mapping[str, tuple[int, ...]]  # split -> samples of each class

    def num_samples(self, split: str) -> int:
        return sum(self.counts[split])


def load_shard(path: Path) -> Shard:
    """Read and check a shard, or any person's `.npz` that docs/data.md says is one.

    Raises:
        DataError: what is wrong with it, in one line.
    """
    card, stored = read_stored(path)
    ready = {split: Split(card.transform.apply(part.x), part.y) for split, part in stored.items()}
    return Shard(path.stem, card, **ready)


def read_stored(path: Path) -> tuple[Card, dict[str, Split]]:
    """Read and check a shard without transforming it: x is (N, H, W, C), uint8 or float32.

    Raises:
        DataError: as `load_shard`.
    """
    with opened(path) as archive:
        card, where = _described(archive)
        names = {name for part in where.values() for name in (part.x, part.y)}
        arrays = {name: archive.array(name) for name in names}
        is_ours = CARD in archive
    stored = {}
    for split, part in where.items():
        x = _images(arrays[part.x], f"{path}: {part.x}", is_ours=is_ours)
        y = checked_labels(arrays[part.y], len(card.classes), f"{path}: {part.y}")
        if len(x) != len(y):
            raise DataError(f"{path}: {part.x} has {len(x)} samples and {part.y} {len(y)} labels")
        stored[split] = Split(x, y) if part.rows is None else Split(x[part.rows], y[part.rows])
    stored = _checked(stored, card, path)
    found = _digest(card, stored)
    if is_ours and card.digest != found:
        raise DataError(
            f"{path} has digest {found[:12]}, its card says {card.digest[:12]}",
            hint="it was changed after it was made: make it anew, or copy it again",
        )
    return card.stamped(found), stored


def shard_facts(path: Path) -> ShardFacts:
    """Read shape, classes and counts of a shard, not its images.

    Raises:
        DataError: no file, torn, or not a shard.
    """
    with opened(path) as archive:
        card, where = _described(archive)
        counts = {}
        for split, part in where.items():
            y = checked_labels(archive.array(part.y), len(card.classes), f"{path}: {part.y}")
            counts[split] = _counts(y if part.rows is None else y[part.rows], len(card.classes))
        header = archive.header(where["train"].x)
        is_ours = CARD in archive
    claimed = np.broadcast_to(np.zeros((), header.dtype), header.shape)  # takes no memory
    _, height, width, channels = _images(claimed, f"{path}: train", is_ours=is_ours).shape
    return ShardFacts(path.stem, path, card, (channels, height, width), counts)


def save_shard(path: Path, card: Card, splits: Mapping[str, Split]) -> Card:
    """Write a shard, whole or not at all; equal content gives equal bytes.

    The splits are train, val and test as stored: x (N, H, W, C) of uint8 or floats, y integers.
    Val and test may be empty, with the shape of train's samples.

    Returns:
        The card with its digest.

    Raises:
        DataError: the content would be refused by `load_shard`, or the disk by the system.
    """
    if set(splits) != set(SPLITS):
        raise DataError(f"{path}: splits are {sorted(splits)}, must be {sorted(SPLITS)}")
    checked = _checked({split: splits[split] for split in SPLITS}, card, path)
    stamped = card.stamped(_digest(card, checked))
    arrays: dict[str, Array] = {CARD: np.array(stamped.text())}
    for split, part in checked.items():
        arrays |= {f"x_{split}": part.x, f"y_{split}": part.y}
    write_archive(path, arrays)
    return stamped


def find_shard(name: str) -> Path:
    """Find what a person typed after `--data`: a path, or a name in ./shards or $KINFOLK_DATA.

    Raises:
        DataError: there is no such shard; names the shards that there are.
    """
    folders = [Path("shards")]
    if given := os.environ.get(DATA_FOLDER):
        folders.append(Path(given))
    for folder in (Path(), *folders):
        for path in (folder / name, folder / f"{name}.npz"):
            if path.is_file():
                return path
    if Path(name).is_dir():
        folders.insert(0, Path(name))
    there = [str(path) for folder in folders for path in shards_in(folder)]
    looked = f"looked for a file of that name, then in ./shards and ${DATA_FOLDER}"
    shown = ", ".join(there[:20]) + (f" and {len(there) - 20} more" if len(there) > 20 else "")
    raise DataError(
        f"no shard {name!r} ({looked}); there are: {shown or 'none'}",
        hint="" if there else "make some: peer data make digits --peers 8 --out shards",
    )


def shards_in(folder: Path) -> list[Path]:
    """List the `.npz` files of a folder, shard2 before shard10."""
    found = folder.glob("*.npz") if folder.is_dir() else ()
    return sorted(found, key=lambda path: (len(path.stem), path.stem))


def _described(archive: Archive) -> tuple[Card, Mapping[str, Part]]:
    """Read a shard's card and where its splits lie; a person's file gets a card here."""
    if CARD in archive:
        text = archive.array(CARD)
        if text.ndim != 0 or text.dtype.kind != "U":
            raise DataError(f"{archive.path}: its card is not one text")
        for name in (f"{axis}_{split}" for split in SPLITS for axis in "xy"):
            if name not in archive:
                raise DataError(f"{archive.path} has no {name}: a split is missing")
        where = {split: Part(f"x_{split}", f"y_{split}") for split in SPLITS}
        try:
            return parse_card(text.item()), where
        except DataError as error:
            raise DataError(f"{archive.path}: {error}") from None
    foreign = parts(archive)
    names = class_names(archive, [archive.array(part.y) for part in foreign.values()])
    is_bytes = archive.header(foreign["train"].x).dtype == np.uint8
    card = Card(
        domain=archive.path.stem,
        classes=names,
        source="a person's own file",
        transform=BYTES_AROUND_ZERO if is_bytes else Transform(),
    )
    return card, foreign


def _images(x: Array, where: str, *, is_ours: bool) -> Array:
    if not is_ours:
        return as_images(x, where)
    if x.ndim != 4 or x.dtype not in (np.uint8, np.float32):
        raise DataError(
            f"{where} is {x.dtype} of shape {x.shape}, must be uint8 or float32 of (N, H, W, C)"
        )
    return x


def _checked(splits: Mapping[str, Split], card: Card, path: Path) -> dict[str, Split]:
    """Check pixels, labels and their fit; val and test may be empty, train may not."""
    shape = splits["train"].x.shape[1:]
    checked = {}
    for split, part in splits.items():
        where = f"{path}: {split}"
        if part.x.ndim != 4 or len(part.x) != len(part.y):
            raise DataError(f"{where} has images {part.x.shape} and {len(part.y)} labels")
        x = _plain(part.x, where)
        if x.shape[1:] != shape:
            raise DataError(f"{where} has images {x.shape[1:]}, train has {shape}")
        if x.dtype != np.uint8 and not (fine := np.isfinite(x).all(axis=(1, 2, 3))).all():
            raise DataError(
                f"{where} has NaN or infinite pixels in {np.sum(~fine)} of {len(x)} samples, "
                f"the first is sample {int(np.argmin(fine))}"
            )
        checked[split] = Split(x, checked_labels(part.y, len(card.classes), where))
    height, width, channels = shape
    if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE and 1 <= channels <= MAX_CHANNELS):
        raise DataError(
            f"{path} has images (H, W, C) of {shape}, allowed are sides of 1 to {MAX_SIDE} and "
            f"1 to {MAX_CHANNELS} channels"
        )
    if not len(checked["train"]):
        raise DataError(f"{path} is empty: it has no training sample", hint="one is enough")
    return checked


def _plain(x: Array, where: str) -> Array:
    """Make pixels C-contiguous uint8 or float32."""
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataError(f"{where} has pixels of {x.dtype}, must be uint8 or float")
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as that
        return np.ascontiguousarray(x, np.uint8 if x.dtype == np.uint8 else np.float32)


def _counts(y: Rows, num_classes: int) -> tuple[int, ...]:
    return tuple(np.bincount(y, minlength=num_classes).tolist())


def _digest(card: Card, splits: Mapping[str, Split]) -> str:
    """Hash the card and, of each split in order, dtype, shape and bytes; hex of 32 bytes."""
    hasher = blake2b(card.stamped("").text().encode(), digest_size=32)
    for split in SPLITS:
        for array in (splits[split].x, splits[split].y):
            hasher.update(f"{split} {array.dtype.str} {array.shape}".encode())
            hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()

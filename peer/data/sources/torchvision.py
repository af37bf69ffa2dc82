"""torchvision's data sets, read through its own loaders (some of which unpickle what they fetched).

Imported only when asked for: it imports torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peer.data.archive import Array
from peer.data.domain import DIGITS, Domain, Pixels
from peer.data.fields import unknown_key
from protocol.errors import ConfigError, DataError

__all__ = ["NAMES", "load"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to open one data set, and where its arrays lie."""

    open_part: Callable[[Any, str, bool, bool], Any]  # (datasets, root, is_train, download)
    labels: str = "targets"
    classes: tuple[str, ...] | None = None  # None: as the data set names them
    turn: tuple[int, ...] | None = None  # of the axes of its data, to (N, H, W[, C])


def _train_flag(name: str) -> Callable[[Any, str, bool, bool], Any]:
    return lambda sets, root, is_train, download: getattr(sets, name)(
        root, train=is_train, download=download
    )


RECIPES = {
    "MNIST": Recipe(_train_flag("MNIST"), classes=DIGITS),
    "FashionMNIST": Recipe(_train_flag("FashionMNIST")),
    "USPS": Recipe(_train_flag("USPS"), classes=DIGITS),
    "CIFAR10": Recipe(_train_flag("CIFAR10")),
    "CIFAR100": Recipe(_train_flag("CIFAR100")),
    "EMNIST": Recipe(  # stored with its two image axes swapped
        lambda sets, root, is_train, download: sets.EMNIST(
            root, split="balanced", train=is_train, download=download
        ),
        turn=(0, 2, 1),
    ),
    "SVHN": Recipe(
        lambda sets, root, is_train, download: sets.SVHN(
            root, split="train" if is_train else "test", download=download
        ),
        labels="labels",
        classes=DIGITS,
        turn=(0, 2, 3, 1),
    ),
}
NAMES = (*RECIPES, "ImageFolder")


def load(name: str, root: Path, *, size: int | None, download: bool) -> Domain:
    """Read a data set's train and test parts; the test part stays for tests.

    Raises:
        ConfigError: a name that is none of NAMES.
        DataError: it is not under `root`, or cannot be read or downloaded.
    """
    if name not in NAMES:
        raise unknown_key(name, NAMES, "data set", ConfigError)
    try:
        if name == "ImageFolder":
            return _image_folder(root, size)
        return _packed(name, root, download=download)
    except (OSError, RuntimeError, EOFError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{name} cannot be read from {root}: {reason}",
            hint="" if download or name == "ImageFolder" else "--download fetches it",
        ) from None


def _packed(name: str, root: Path, *, download: bool) -> Domain:
    from torchvision import datasets  # noqa: PLC0415 - imports torch

    recipe = RECIPES[name]
    parts = [
        recipe.open_part(datasets, str(root), is_train, download) for is_train in (True, False)
    ]
    labels = [np.asarray(getattr(part, recipe.labels), np.int64) for part in parts]
    return Domain(
        name=name.lower(),
        x=np.concatenate([_pixels(np.asarray(part.data), recipe.turn) for part in parts]),
        y=np.concatenate(labels),
        classes=recipe.classes or tuple(parts[0].classes),
        source=f"{name}, as torchvision reads it",
        for_test=np.repeat([False, True], [len(y) for y in labels]),
    )


def _pixels(data: Array, turn: tuple[int, ...] | None) -> Pixels:
    turned = data if turn is None else data.transpose(turn)
    return turned if turned.ndim == 4 else turned[..., None]


def _image_folder(root: Path, size: int | None) -> Domain:
    """Read `root/CLASS/*`, or `root/train/CLASS/*` with `root/test` (or `val`) for tests."""
    from torchvision import datasets  # noqa: PLC0415 - imports torch

    if size is None:
        raise ConfigError("ImageFolder has images of any size", hint="give --size, in pixels")
    tests = [root / name for name in ("test", "val") if (root / name).is_dir()]
    is_split = (root / "train").is_dir() and bool(tests)
    folders = [root / "train", tests[0]] if is_split else [root]
    parts = [datasets.ImageFolder(str(folder)) for folder in folders]
    if len({tuple(part.classes) for part in parts}) > 1:
        raise DataError(f"{folders[0]} and {folders[1]} have different class folders")
    samples = [sample for part in parts for sample in part.samples]
    return Domain(
        name="imagefolder",
        x=np.stack([_square(Path(path), size) for path, _ in samples]),
        y=np.array([label for _, label in samples], np.int64),
        classes=tuple(parts[0].classes),
        source=f"a folder of images, {root.resolve().name}",
        for_test=np.repeat([i == 1 for i in range(len(parts))], [len(p.samples) for p in parts]),
    )


def _square(path: Path, size: int) -> Pixels:
    """Read one image as RGB, cut to its central square, resized: (size, size, 3)."""
    from PIL import Image, ImageOps  # noqa: PLC0415 - a node that only loads shards needs no PIL

    with Image.open(path) as image:
        return np.asarray(
            ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BICUBIC)
        )

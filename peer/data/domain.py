"""One domain: labelled images of one origin, before they are dealt to peers."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from peer.data.archive import Array
from peer.data.layout import Rows
from protocol.errors import ConfigError, DataError, OperatorError

__all__ = ["DIGITS", "Domain", "Pixels", "alike", "as_bytes", "missing_extra"]

Pixels = npt.NDArray[np.uint8]

DIGITS = tuple("0123456789")
LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey, ITU-R BT.601


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Images x (N, H, W, C) uint8 with labels y (N,).

    `is_named` tells names of classes from mere numbers; `for_test` marks official test samples.
    """

    name: str
    x: Pixels
    y: Rows
    classes: tuple[str, ...]
    source: str
    is_named: bool = True
    for_test: npt.NDArray[np.bool_] | None = None

    def test_mask(self) -> npt.NDArray[np.bool_]:
        return np.zeros(len(self.y), np.bool_) if self.for_test is None else self.for_test


def alike(domains: list[Domain], *, size: int | None, channels: int | None) -> list[Domain]:
    """Bring domains to one image shape and one list of classes.

    Args:
        domains: at least one, each with at least one sample.
        size: pixels of both sides; None keeps the size when all have the same.
        channels: 1 or 3; None keeps what all have, or takes 3 where they differ.

    Raises:
        ConfigError: sizes differ and none was asked for, or a number of channels cannot be changed.
        DataError: the domains have different classes.
    """
    sides = {domain.x.shape[1:3] for domain in domains}
    if size is None and len(sides) > 1:
        seen = ", ".join(f"{d.name} {d.x.shape[2]}x{d.x.shape[1]}" for d in domains)
        raise ConfigError(f"the domains have images of different sizes: {seen}", hint="give --size")
    if channels is None:
        depths = {domain.x.shape[3] for domain in domains}
        channels = depths.pop() if len(depths) == 1 else 3
    classes = _common_classes(domains)
    return [
        replace(
            domain,
            x=_recoloured(
                domain.x if size is None else _resized(domain.x, size), channels, domain.name
            ),
            classes=classes,
        )
        for domain in domains
    ]


def _common_classes(domains: list[Domain]) -> tuple[str, ...]:
    """Find the list that all share; numbered classes take the names that others give them."""
    named = [domain for domain in domains if domain.is_named]
    classes = max((domain.classes for domain in named or domains), key=len)
    for domain in domains:
        fits = domain.classes == classes if domain.is_named else len(domain.classes) <= len(classes)
        if not fits:
            raise DataError(
                f"domain {domain.name} has {len(domain.classes)} classes "
                f"({', '.join(domain.classes)[:60]}), others have {len(classes)} "
                f"({', '.join(classes)[:60]})",
                hint="domains of one run must share their classes, in the same order",
            )
    return classes


def _resized(x: Pixels, size: int) -> Pixels:
    """Resize by bicubic interpolation, with its low-pass filter when it shrinks."""
    from PIL import Image  # noqa: PLC0415 - a node that only loads shards needs no PIL

    if x.shape[1:3] == (size, size):
        return x
    resized = np.empty((len(x), size, size, x.shape[3]), np.uint8)
    for i, image in enumerate(x):
        for channel in range(x.shape[3]):
            plane = Image.fromarray(image[..., channel])
            fitted = plane.resize((size, size), Image.Resampling.BICUBIC)
            resized[i, ..., channel] = np.asarray(fitted)
    return resized


def _recoloured(x: Pixels, channels: int, name: str) -> Pixels:
    if x.shape[3] == channels:
        return x
    if x.shape[3] == 1:
        return np.repeat(x, channels, axis=3)
    if (x.shape[3], channels) == (3, 1):
        grey: Pixels = np.rint(x @ np.array(LUMA)).astype(np.uint8)
        return grey[..., None]
    raise ConfigError(f"domain {name} has {x.shape[3]} channels, they cannot become {channels}")


def as_bytes(x: Array, where: str) -> Pixels:
    """Turn images of uint8, or of floats in [0, 1], into uint8.

    Raises:
        DataError: floats outside [0, 1], NaN among them.
    """
    if x.dtype == np.uint8:
        return x
    if x.size and not (x.min() >= 0 and x.max() <= 1):
        raise DataError(
            f"{where} has floats from {x.min():g} to {x.max():g}, allowed are 0 to 1",
            hint="store images as uint8",
        )
    scaled: Pixels = np.rint(x * 255).astype(np.uint8)
    return scaled


def missing_extra(package: str) -> OperatorError:
    """Make the error for a package that only an extra brings."""
    return OperatorError(f"{package} is not installed", hint="pip install 'kinfolk[digits]'")

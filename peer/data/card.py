"""A shard's card: what the arrays cannot say of themselves. Must not read arrays or files."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from peer.data.archive import Array
from peer.data.fields import Kind, match_fields, parse_object
from protocol.errors import DataError

__all__ = ["BYTES_AROUND_ZERO", "SPLITS", "Card", "Transform", "parse_card"]

SPLITS = ("train", "val", "test")
FORMAT = "kinfolk-shard"
VERSION = 1
MAX_CLASSES = 10_000
MAX_CHANNELS = 16


@dataclass(frozen=True, slots=True)
class Transform:
    """How stored pixels become a model's input: `(stored * scale - mean) / std`, per channel.

    `mean` and `std` hold one number for all channels, or one for each.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        numbers = (self.scale, *self.mean, *self.std)
        if not all(math.isfinite(number) and abs(number) <= 1e6 for number in numbers):
            raise DataError(f"a transform's numbers must be finite, within 1e6: {self}")
        if not all(number >= 1e-6 for number in (self.scale, *self.std)):
            raise DataError(f"a transform's scale and std must be at least 1e-6: {self}")
        if not 1 <= len(self.mean) <= MAX_CHANNELS or not 1 <= len(self.std) <= MAX_CHANNELS:
            raise DataError(f"a transform needs 1 to {MAX_CHANNELS} means and stds: {self}")

    def __str__(self) -> str:
        mean, std = (", ".join(f"{n:g}" for n in numbers) for numbers in (self.mean, self.std))
        return f"(stored * {self.scale:g} - [{mean}]) / [{std}]"

    def apply(self, stored: Array) -> npt.NDArray[np.float32]:
        """Turn (N, H, W, C) uint8 or float32 into (N, C, H, W) float32, C-contiguous.

        Raises:
            DataError: there are more means or stds than one, and not one per channel.
        """
        channels = stored.shape[-1]
        if not {len(self.mean), len(self.std)} <= {1, channels}:
            raise DataError(f"transform {self} does not fit {channels} channels")
        x = stored.transpose(0, 3, 1, 2).astype(np.float32, order="C")
        x *= np.float32(self.scale)
        x -= np.asarray(self.mean, np.float32)[:, None, None]
        x /= np.asarray(self.std, np.float32)[:, None, None]
        return x


BYTES_AROUND_ZERO = Transform(scale=1 / 255, mean=(0.5,), std=(0.5,))  # 0..255 to -1..1


@dataclass(frozen=True, slots=True)
class Card:
    """What a shard says of itself.

    `naming[i]` is the label that this shard's camp gives to true class i; in camp 0 it is i.
    `digest` is blake2b over the arrays and all other fields, empty until a shard is written.
    """

    domain: str
    classes: tuple[str, ...]
    source: str = ""
    transform: Transform = field(default=BYTES_AROUND_ZERO)
    camp: int = 0
    naming: tuple[int, ...] = ()
    digest: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.classes) <= MAX_CLASSES:
            raise DataError(f"{len(self.classes)} classes, allowed are 1 to {MAX_CLASSES}")
        if not self.naming:
            object.__setattr__(self, "naming", tuple(range(len(self.classes))))
        if sorted(self.naming) != list(range(len(self.classes))):
            raise DataError(f"naming {self.naming} is not an order of {len(self.classes)} classes")
        if self.camp < 0:
            raise DataError(f"camp is {self.camp}, must be >= 0")

    def text(self) -> str:
        """Write as JSON; equal cards give equal text."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, sort_keys=True)

    def stamped(self, digest: str) -> "Card":
        return replace(self, digest=digest)


_CARD: Mapping[str, Kind] = {
    "format": Kind(str),
    "version": Kind(int),
    "domain": Kind(str),
    "classes": Kind(list, str),
    "source": Kind(str),
    "transform": Kind(dict),
    "camp": Kind(int),
    "naming": Kind(list, int),
    "digest": Kind(str),
}
_TRANSFORM: Mapping[str, Kind] = {
    "scale": Kind(float),
    "mean": Kind(list, float),
    "std": Kind(list, float),
}


def parse_card(text: str) -> Card:
    """Read a card, refusing what it does not know.

    Raises:
        DataError: not JSON, not a card, of another version, or a field is missing, unknown or of
            a wrong type.
    """
    raw = parse_object(text, "its card")
    if (found := (raw.get("format"), raw.get("version"))) != (FORMAT, VERSION):
        raise DataError(f"its card is of format and version {found}, read is {(FORMAT, VERSION)}")
    fields: dict[str, Any] = match_fields(raw, _CARD, "its card")
    transform: dict[str, Any] = match_fields(fields["transform"], _TRANSFORM, "its transform")
    return Card(
        domain=fields["domain"],
        classes=tuple(fields["classes"]),
        source=fields["source"],
        transform=Transform(transform["scale"], tuple(transform["mean"]), tuple(transform["std"])),
        camp=fields["camp"],
        naming=tuple(fields["naming"]),
        digest=fields["digest"],
    )

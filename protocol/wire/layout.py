"""Where each tensor lies in the body of a snapshot: a function of the list of tensors alone.

Tensors follow each other in the order of the list, each at the next multiple of 64 bytes, so that a
view of a received body is as well aligned as a tensor of its own. Knows no tensor library.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

from protocol.errors import LayoutError
from protocol.wire.digest import digest
from protocol.wire.messages import TensorSpec
from protocol.wire.shape import pack

__all__ = [
    "ALIGN_BYTES",
    "DTYPES",
    "MAX_BODY_BYTES",
    "SECTIONS",
    "Layout",
    "Place",
    "schema_digest",
]

DTYPES: Final = MappingProxyType(  # bytes of one element; little-endian
    {
        "float64": 8,
        "float32": 4,
        "float16": 2,
        "bfloat16": 2,
        "int64": 8,
        "int32": 4,
        "int16": 2,
        "int8": 1,
        "uint8": 1,
        "bool": 1,
    }
)
SECTIONS = ("params", "buffers", "extras")
ALIGN_BYTES = 64  # a cache line, and what the widest vector instructions like
MAX_BODY_BYTES = 1 << 36  # 64 GiB: of one snapshot


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes [start, end) of the body."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    places: tuple[Place, ...]  # one for each tensor, in order
    body_bytes: int  # end of the last tensor; no padding after it

    @classmethod
    def of(cls, specs: Sequence[TensorSpec]) -> "Layout":
        """Lay out the tensors.

        Raises:
            LayoutError: an unknown dtype or section, a name twice, or more than MAX_BODY_BYTES.
        """
        places = []
        end = 0
        seen = set()
        for spec in specs:
            label = f"{spec.section}/{spec.name}"
            if spec.section not in SECTIONS:
                raise LayoutError(f"{label}: section must be one of {', '.join(SECTIONS)}")
            if spec.dtype not in DTYPES:
                raise LayoutError(f"{label}: {spec.dtype} must be one of {', '.join(DTYPES)}")
            if label in seen:
                raise LayoutError(f"{label}: comes twice")
            seen.add(label)
            start = -(-end // ALIGN_BYTES) * ALIGN_BYTES
            end = start + prod(spec.shape) * DTYPES[spec.dtype]
            if end > MAX_BODY_BYTES:
                raise LayoutError(f"{label}: ends at byte {end}, at most {MAX_BODY_BYTES}")
            places.append(Place(start, end))
        return cls(tuple(places), end)


def schema_digest(specs: Iterable[TensorSpec]) -> bytes:
    """Digest of sections, names, dtypes and shapes in their order: what two peers must share."""
    return digest(pack([[s.section, s.name, s.dtype, list(s.shape)] for s in specs]))

"""The head of a snapshot file: what makes its body a safetensors file. No torch, no IO."""

import json
import struct

from protocol.wire.layout import ALIGN_BYTES, Layout
from protocol.wire.messages import TensorSpec

__all__ = ["header_of"]

_HEADER_LENGTH = struct.Struct("<Q")
_DTYPES = {
    "float32": "F32",
    "float64": "F64",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
    "bool": "BOOL",
}


def header_of(specs: tuple[TensorSpec, ...], layout: Layout) -> bytes:
    """A safetensors header that covers the body without a hole, padded to the alignment."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt", "kinfolk": "snapshot"}}
    at = 0
    for spec, place in zip(specs, layout.places, strict=True):
        if place.start > at:
            entries[f"pad.{at}"] = _entry("U8", (place.start - at,), at, place.start)
        key = f"{spec.section}/{spec.name}"
        entries[key] = _entry(_DTYPES[spec.dtype], spec.shape, place.start, place.end)
        at = place.end
    if layout.body_bytes > at:
        entries[f"pad.{at}"] = _entry("U8", (layout.body_bytes - at,), at, layout.body_bytes)
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + _HEADER_LENGTH.size) % ALIGN_BYTES)
    return _HEADER_LENGTH.pack(len(text)) + text


def _entry(dtype: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}

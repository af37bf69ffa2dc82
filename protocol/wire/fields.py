"""What a field of a message may hold: the limits that the codec checks, beside the types.

`Annotated[int, Range(0, 9)]` is a number in [0, 9]; `Annotated[bytes, Size(32, 32)]` is 32 bytes;
`Annotated[tuple[Name, ...], Size(0, 1024)]` is a list of at most 1024 names.
Every length and count that is read from the network has its ceiling here or in messages.py.
A string holds printable characters only: no line breaks, no escapes of a terminal.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

__all__ = [
    "Attempt",
    "Count",
    "Digest",
    "Fraction",
    "Key",
    "Name",
    "Nats",
    "Range",
    "Recurs",
    "RoundNo",
    "RunKey",
    "Scalar",
    "Seconds",
    "Signature",
    "Size",
    "Text",
    "Xid",
    "as_text",
]


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds of a number; a float must also be finite."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Size:
    """Inclusive bounds of a length: bytes, characters, or items."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Recurs:
    """Most items of a list were in the one before: so many are remembered, both ways."""

    kept: int


Scalar: TypeAlias = bool | int | float | str  # one option's value; a str has at most 500 characters

Attempt: TypeAlias = Annotated[int, Range(0, 2**32 - 1)]
Count: TypeAlias = Annotated[int, Range(0, 2**48)]
Digest: TypeAlias = Annotated[bytes, Size(32, 32)]  # BLAKE3-256
Fraction: TypeAlias = Annotated[float, Range(0.0, 1.0)]
Key: TypeAlias = Annotated[bytes, Size(32, 32)]  # CURVE25519 or Ed25519 public key, raw
Name: TypeAlias = Annotated[str, Size(1, 64)]
Nats: TypeAlias = Annotated[float, Range(0.0, 1e300)]
RoundNo: TypeAlias = Annotated[int, Range(0, 2**31)]
RunKey: TypeAlias = Annotated[bytes, Size(16, 16)]
Seconds: TypeAlias = Annotated[float, Range(0.0, 1e8)]
Signature: TypeAlias = Annotated[bytes, Size(64, 64)]
Text: TypeAlias = Annotated[str, Size(0, 400)]  # for a person, never parsed; see as_text
Xid: TypeAlias = Annotated[int, Range(0, 2**32 - 1)]

_TEXT_CHARS = 400


def as_text(reason: object) -> str:
    """Make a Text of anything that has words, such as an error: one line, cut to its limit."""
    words = " ".join(str(reason).split())
    return "".join(c if c.isprintable() else "?" for c in words)[:_TEXT_CHARS]

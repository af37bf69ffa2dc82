"""Keys that the coordinator refuses for what they sent.

The transport shuts a key out at once and knows no file; the book remembers it, so that the next
start refuses it too. Whoever has such a key may be a member, or anybody: strangers make keys as
they like, so they have a bounded share of the list and push no member out of it.
"""

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["MAX_STRANGERS", "Offence", "Refusal", "remember"]

KEY_BYTES = 32
MAX_STRANGERS = 256  # keys of no member; the oldest is forgotten
MAX_AT_S = 4e9  # in the year 2096


@dataclass(frozen=True, slots=True)
class Refusal:
    key: bytes  # CURVE, 32 bytes
    reason: str
    at_s: float  # seconds since 1970; 0 where no clock was known

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"a refused key of {len(self.key)} bytes, must be of {KEY_BYTES}")
        if not 0.0 <= self.at_s <= MAX_AT_S:
            raise ValueError(f"at_s is {self.at_s}, must be in [0, {MAX_AT_S:.0f}]")


def remember(refused: dict[bytes, Refusal], refusal: Refusal, members: Collection[bytes]) -> None:
    """Add a refusal, the newest last; where strangers' are too many, the oldest of theirs goes.

    Args:
        refused: by key, changed in place.
        refusal: the new one; one of its key that is known stays as it is.
        members: keys of members.
    """
    refused.setdefault(refusal.key, refusal)
    strangers = [key for key in refused if key not in members]
    for key in strangers[:-MAX_STRANGERS]:
        del refused[key]


@dataclass(frozen=True, slots=True)
class Offence:
    """What the transport tells of a key that it has shut out."""

    key: bytes
    reason: str

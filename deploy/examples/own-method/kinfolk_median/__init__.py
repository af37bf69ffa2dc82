"""What a peer knows of mixer `median` without running it: no torch here."""

from dataclasses import dataclass

from peer.options.entry import Entry, Need
from peer.options.fields import check, whole

__all__ = ["MEDIAN", "MedianOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianOptions:
    own_votes: int = whole(1, "[1, 100]", "how often the own model counts")

    def __post_init__(self) -> None:
        check(self)


MEDIAN = Entry(
    MedianOptions,
    "median of every coordinate",
    gives=frozenset({Need.OUTLET}),  # a relay's model may be one of those mixed
    factory="kinfolk_median.mixer:Median",
)

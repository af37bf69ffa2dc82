"""What a link wants done, and what it tells."""

from dataclasses import dataclass
from typing import TypeAlias

from protocol.wire.messages import NotYet, PeerMessage, SignedView, SnapshotManifest, Welcome

__all__ = [
    "Answered",
    "Effect",
    "Finished",
    "LinkDown",
    "LinkUp",
    "Refused",
    "Send",
    "Step",
    "ViewPassed",
    "Waiting",
    "WakeAt",
]


@dataclass(frozen=True, slots=True)
class Send:
    message: PeerMessage


@dataclass(frozen=True, slots=True)
class WakeAt:
    at_s: float  # monotonic


@dataclass(frozen=True, slots=True)
class LinkUp:
    welcome: Welcome


@dataclass(frozen=True, slots=True)
class LinkDown:
    """It goes on trying. Told once for each time that it was up, or that it never came up."""

    reason: str
    said_bye: bool = False  # they left on purpose, and the reason is theirs


@dataclass(frozen=True, slots=True)
class Waiting:
    """They have it not yet, and say how far they are."""

    not_yet: NotYet


@dataclass(frozen=True, slots=True)
class Step:
    """What leads to a result from one that we hold; its manifest's `base` names that one."""

    manifest: SnapshotManifest  # of the run's schema of steps
    digest: bytes  # of the encoded manifest: under which it is served


@dataclass(frozen=True, slots=True)
class Answered:
    """The question is closed. The manifest is theirs, signed by them, of our run and schema.

    Whoever then hands over the bytes of a tensor, they count by the digest that stands in it.
    """

    round_no: int  # asked or newer
    manifest: SnapshotManifest
    digest: bytes  # of the encoded manifest: the name of the snapshot
    step: Step | None = None  # where the sender has one from what we said that we hold


@dataclass(frozen=True, slots=True)
class Refused:
    """They will not talk to us, and say which line differs. Told once for each reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """They know that we need nothing more of them. Nothing follows."""


@dataclass(frozen=True, slots=True)
class ViewPassed:
    """They pass on a view; whether it is the coordinator's, and newer, is for us to check."""

    signed: SignedView


Effect: TypeAlias = (
    Send | WakeAt | LinkUp | LinkDown | Waiting | Answered | Refused | Finished | ViewPassed
)

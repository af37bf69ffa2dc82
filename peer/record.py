"""What a round came to: the one record that the machine writes and everything else reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from peer.work import Candidate, Group, Score, SnapshotRef, Weights
from protocol.ids import PeerId
from protocol.wire.codec import decode_document
from protocol.wire.messages import SnapshotManifest

__all__ = ["RoundRecord", "tensor_digests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    round_no: int
    used: Mapping[PeerId, int]  # fresh contributions: neighbour -> the round of what it sent
    stale: Mapping[PeerId, int]  # last-known-good contributions: neighbour -> age in rounds
    missing: tuple[PeerId, ...]  # asked, and nothing of it was mixed
    refused: Mapping[PeerId, str]  # failed admission, and why
    cut: Mapping[PeerId, str] = field(default_factory=dict)  # exchanges that the faults let fail
    unawaited: str = ""  # a relay whose model is welcome when it comes, and no more than that
    skipped: tuple[int, ...] = ()  # rounds jumped over before this one
    waited_s: float = 0.0  # in COLLECT
    mix_s: float = 0.0
    train_s: float = 0.0
    twin_s: float = 0.0  # in which the twin was trained
    round_s: float = 0.0  # from the start of COLLECT to the published result
    num_steps: int = 0
    train_loss: float = 0.0  # mean over the steps, nats
    epsilon: float | None = None  # of differential privacy, spent so far; None: not private
    mixed: Score | None = None
    trained: Score | None = None
    own: Score | None = None
    served: str = "trained"  # which model `own` is
    twin: Score | None = None  # of the model that is trained alone, where there is one
    candidates: tuple[Candidate, ...] = ()  # that might have been served
    weights: tuple[Weights, ...] = ()
    notes: Mapping[str, float] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()  # of layers, as an aggregator sees them
    pulled: Mapping[PeerId, int] = field(default_factory=dict)  # bytes, since the last record
    sent: Mapping[PeerId, int] = field(default_factory=dict)  # the same, to each who asked
    digest: str = ""  # of the published layout and tensors, in hex
    tensors: Mapping[str, str] = field(default_factory=dict)  # by name: of each, its first 8 bytes

    @property
    def pulled_bytes(self) -> int:
        return sum(self.pulled.values())

    @property
    def degraded(self) -> bool:
        """Somebody who was asked did not take part with a fresh result."""
        late = (self.stale.keys() | self.cut.keys()) - {self.unawaited}
        return bool(late or self.missing or self.refused)


def tensor_digests(snapshot: SnapshotRef) -> dict[str, str]:
    """The beginning of each tensor's digest, by section and name."""
    tensors = decode_document(SnapshotManifest, snapshot.manifest).tensors
    return {f"{t.section}/{t.name}": t.digest[:8].hex() for t in tensors}

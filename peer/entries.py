"""What a peer's journal says, one frozen class each, and the record of a round among it.

Two entries tell all: `Collected`, what is to be mixed, before it is; `Finished`, what a round came
to, before anybody is shown it. Encoded by the same strict codec as the wire. No IO, no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from peer.record import RoundRecord
from peer.work import Group, Mix, Note, Published, Score, SnapshotRef, Unused, Weights
from protocol.ids import PeerId
from protocol.wire.codec import Codec
from protocol.wire.fields import Name, Range, RoundNo, RunKey, Seconds, Size, as_text
from protocol.wire.messages import MAX_MANIFEST_BYTES, MAX_MEMBERS, MAX_TENSORS

__all__ = [
    "ENTRIES",
    "Collected",
    "Entry",
    "Finished",
    "Good",
    "Past",
    "WrittenRecord",
    "mapping",
    "numbers",
    "record_of",
    "written",
]

_Number = Annotated[float, Range(-1e300, 1e300)]
_Bytes = Annotated[int, Range(0, 2**60)]
_Names: TypeAlias = Annotated[tuple[Name, ...], Size(0, MAX_MEMBERS)]
_Rounds: TypeAlias = Annotated[tuple[RoundNo, ...], Size(0, 1 << 20)]


@dataclass(frozen=True, slots=True)
class Good:
    """A neighbour's last-known-good snapshot, and the receive buffer that it lies in."""

    neighbour: Name
    round_no: RoundNo
    slot: Annotated[int, Range(0, 2)]
    snapshot: SnapshotRef


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes that came from, or went to, a neighbour."""

    name: Name
    num_bytes: _Bytes


@dataclass(frozen=True, slots=True)
class Number:
    """A round, or an age in rounds, of a neighbour."""

    name: Name
    value: Annotated[int, Range(-(2**31), 2**31)]


@dataclass(frozen=True, slots=True)
class Tensor:
    """The start of a published tensor's digest, in hex."""

    name: Annotated[str, Size(1, 256)]
    digest: Annotated[str, Size(0, 64)]


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """A `RoundRecord` of lists: one `Score` or none, pairs for mappings."""

    round_no: RoundNo
    used: Annotated[tuple[Number, ...], Size(0, MAX_MEMBERS)]
    stale: Annotated[tuple[Number, ...], Size(0, MAX_MEMBERS)]
    missing: _Names
    refused: Annotated[tuple[Unused, ...], Size(0, MAX_MEMBERS)]
    skipped: _Rounds
    waited_s: Seconds
    mix_s: Seconds
    train_s: Seconds
    round_s: Seconds
    num_steps: _Bytes
    train_loss: _Number
    epsilon: _Number  # -1: training was not private
    mixed: Annotated[tuple[Score, ...], Size(0, 1)]
    trained: Annotated[tuple[Score, ...], Size(0, 1)]
    own: Annotated[tuple[Score, ...], Size(0, 1)]
    served: Annotated[str, Size(1, 32)]
    weights: Annotated[tuple[Weights, ...], Size(0, MAX_MEMBERS)]
    notes: Annotated[tuple[Note, ...], Size(0, 64)]
    groups: Annotated[tuple[Group, ...], Size(0, 4096)]
    pulled: Annotated[tuple[Amount, ...], Size(0, MAX_MEMBERS)]
    sent: Annotated[tuple[Amount, ...], Size(0, MAX_MEMBERS)]
    digest: Annotated[str, Size(0, 64)]
    tensors: Annotated[tuple[Tensor, ...], Size(0, MAX_TENSORS)]


@dataclass(frozen=True, slots=True)
class Collected:
    """COLLECT is closed: what is mixed, and all that the round's record says of it."""

    run: RunKey
    round_no: RoundNo
    after: RoundNo  # the round that was finished before it; 0 for the first
    mix: Mix
    adjacent: _Names  # in the topology of this round's roster
    asked: _Names
    used: Annotated[tuple[Number, ...], Size(0, MAX_MEMBERS)]
    stale: Annotated[tuple[Number, ...], Size(0, MAX_MEMBERS)]
    missing: _Names
    skipped: _Rounds
    waited_s: Seconds
    good: Annotated[tuple[Good, ...], Size(0, MAX_MEMBERS)]  # sorted by name


@dataclass(frozen=True, slots=True)
class Finished:
    """A round is published: everything to go on from, and nothing of it is served before."""

    run: RunKey
    round_no: RoundNo
    published: Published
    before: Annotated[tuple[Published, ...], Size(0, 1)]  # the round before it: served too
    record: WrittenRecord
    work_s: Seconds  # longest time from the end of COLLECT to a published result
    good: Annotated[tuple[Good, ...], Size(0, MAX_MEMBERS)]  # sorted by name


Entry: TypeAlias = Collected | Finished

ENTRIES: Codec[Entry | WrittenRecord] = Codec(
    {1: Collected, 2: Finished, 3: WrittenRecord},
    max_bytes=(64 << 20) + 16 * MAX_MANIFEST_BYTES,
)


@dataclass(frozen=True, slots=True)
class Past:
    """Where an earlier process of this peer was: what its journal holds, checked."""

    finished: Finished | None = None
    collected: Collected | None = None  # of the round after it, where its inputs are all here
    records: tuple[RoundRecord, ...] = ()  # of all rounds up to there, in order


def numbers(mapping: Mapping[PeerId, int]) -> tuple[Number, ...]:
    return tuple(Number(name, value) for name, value in sorted(mapping.items()))


def mapping(pairs: tuple[Number, ...]) -> dict[PeerId, int]:
    return {PeerId(pair.name): pair.value for pair in pairs}


def written(record: RoundRecord) -> WrittenRecord:
    """A record as the journal keeps it."""
    return WrittenRecord(
        round_no=record.round_no,
        used=numbers(record.used),
        stale=numbers(record.stale),
        missing=tuple(record.missing),
        refused=tuple(Unused(n, as_text(why)) for n, why in sorted(record.refused.items())),
        skipped=record.skipped,
        waited_s=record.waited_s,
        mix_s=record.mix_s,
        train_s=record.train_s,
        round_s=record.round_s,
        num_steps=record.num_steps,
        train_loss=record.train_loss,
        epsilon=record.epsilon if record.epsilon is not None else -1.0,
        mixed=_listed(record.mixed),
        trained=_listed(record.trained),
        own=_listed(record.own),
        served=record.served,
        weights=record.weights,
        notes=tuple(Note(name, value) for name, value in sorted(record.notes.items())),
        groups=record.groups,
        pulled=_amounts(record.pulled),
        sent=_amounts(record.sent),
        digest=record.digest,
        tensors=tuple(Tensor(name, value) for name, value in record.tensors.items()),
    )


def record_of(kept: WrittenRecord) -> RoundRecord:
    """The record that was written."""
    return RoundRecord(
        round_no=kept.round_no,
        used=mapping(kept.used),
        stale=mapping(kept.stale),
        missing=tuple(PeerId(name) for name in kept.missing),
        refused={PeerId(u.sender): u.reason for u in kept.refused},
        skipped=kept.skipped,
        waited_s=kept.waited_s,
        mix_s=kept.mix_s,
        train_s=kept.train_s,
        round_s=kept.round_s,
        num_steps=kept.num_steps,
        train_loss=kept.train_loss,
        epsilon=kept.epsilon if kept.epsilon >= 0.0 else None,
        mixed=_one(kept.mixed),
        trained=_one(kept.trained),
        own=_one(kept.own),
        served=kept.served,
        weights=kept.weights,
        notes={note.name: note.value for note in kept.notes},
        groups=kept.groups,
        pulled={PeerId(amount.name): amount.num_bytes for amount in kept.pulled},
        sent={PeerId(amount.name): amount.num_bytes for amount in kept.sent},
        digest=kept.digest,
        tensors={tensor.name: tensor.digest for tensor in kept.tensors},
    )


def _amounts(traffic: Mapping[PeerId, int]) -> tuple[Amount, ...]:
    return tuple(Amount(name, num_bytes) for name, num_bytes in sorted(traffic.items()))


def _listed(score: Score | None) -> tuple[Score, ...]:
    return () if score is None else (score,)


def _one(scores: tuple[Score, ...]) -> Score | None:
    return scores[0] if scores else None

"""What a peer's journal says, one frozen class each, and the record of a round among it.

Two entries tell all: `Collected`, what is to be mixed, before it is; `Finished`, what a round came
to, before anybody is shown it. Encoded by the same strict codec as the wire. No IO, no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from peer.plain import from_json, to_json
from peer.record import RoundRecord
from peer.work import Mix, Published, SnapshotRef
from protocol.ids import PeerId
from protocol.wire.codec import Codec
from protocol.wire.fields import Name, Range, RoundNo, RunKey, Seconds, Size
from protocol.wire.messages import MAX_MANIFEST_BYTES, MAX_MEMBERS
from protocol.wire.shelf import MAX_KEPT

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
class Number:
    """A round, or an age in rounds, of a neighbour."""

    name: Name
    value: Annotated[int, Range(-(2**31), 2**31)]


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """A `RoundRecord` as JSON."""

    round_no: RoundNo
    content: Annotated[bytes, Size(1, 64 << 20)]


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
    before: Annotated[tuple[Published, ...], Size(0, MAX_KEPT - 1)]  # served too, oldest first
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
    return WrittenRecord(record.round_no, to_json(record))


def record_of(kept: WrittenRecord) -> RoundRecord:
    """The record that was written.

    Raises:
        DataError: it is none.
    """
    return from_json(RoundRecord, kept.content)

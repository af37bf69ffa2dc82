"""What a node tells its trainer process, and what comes back: one frozen class each.

Carried by a pipe between two processes of one host, through the same strict codec as the wire.
Tensors never cross it: a `SnapshotRef` says in which file they lie. No torch, no IO.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from peer.roles import Exchange, Role
from protocol.wire.codec import Codec
from protocol.wire.fields import Digest, Fraction, Name, Range, RoundNo, Scalar, Seconds, Size, Text
from protocol.wire.messages import MAX_MANIFEST_BYTES, MAX_MEMBERS, MAX_TENSORS, TensorSpec
from protocol.wire.shelf import MAX_KEPT, SNAPSHOTS_KEPT

__all__ = [
    "WORK",
    "Adopt",
    "Adopted",
    "Alone",
    "AloneDone",
    "Candidate",
    "Command",
    "Evaluate",
    "Evaluated",
    "Failed",
    "Group",
    "Input",
    "Inspect",
    "Inspected",
    "Mix",
    "MixDone",
    "Prepare",
    "Prepared",
    "Publish",
    "Published",
    "Quit",
    "Reply",
    "Score",
    "Setting",
    "SnapshotRef",
    "Step",
    "Train",
    "TrainDone",
    "Unused",
    "Weights",
    "Working",
]

MAX_FRAME_BYTES = 64 << 20  # 2,048 neighbours with a thousand classes each, and room
_Path = Annotated[str, Size(1, 4096)]
_Number = Annotated[float, Range(-1e300, 1e300)]
_Offset = Annotated[int, Range(0, 2**50)]


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A verified snapshot on this host's disk: its manifest, and where its body lies."""

    manifest: Annotated[bytes, Size(1, MAX_MANIFEST_BYTES)]  # an encoded SnapshotManifest
    digest: Digest  # of the manifest
    path: _Path
    offset: _Offset  # of the body in the file; a multiple of 64


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the run's manifest."""

    key: Name
    value: Scalar


# -- commands -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepare:
    """Load the data, build the model, make the initial point. A relay has no data."""

    peer: Name
    role: Role
    run: Annotated[bytes, Size(16, 16)]
    settings: Annotated[tuple[Setting, ...], Size(0, 256)]
    data: Annotated[str, Size(0, 4096)]
    device: Annotated[str, Size(1, 16)]  # cpu, or the number of a GPU
    directory: _Path  # the peer's run directory
    attack: Annotated[str, Size(0, 64)] = ""  # as a person types it; empty: an honest peer
    # Digest that names the memory of an earlier process to go on from; empty: begin.
    memory: Annotated[bytes, Size(0, 32)] = b""
    # What that process published last: with steps, the replica that the next one goes on from.
    published: Annotated[tuple[SnapshotRef, ...], Size(0, 1)] = ()


@dataclass(frozen=True, slots=True)
class Inspect:
    """Are these parameters fit to be mixed: finite, and of a norm that is not absurd?"""

    neighbour: Name
    snapshot: SnapshotRef


@dataclass(frozen=True, slots=True)
class Input:
    """One neighbour's part in a mix."""

    snapshot: SnapshotRef
    freshness: Fraction  # 1 when fresh, 0.5^(age/half_life) when stale


@dataclass(frozen=True, slots=True)
class Mix:
    round_no: RoundNo
    degree: Annotated[int, Range(0, MAX_MEMBERS)]
    inputs: Annotated[tuple[Input, ...], Size(0, MAX_MEMBERS)]  # sorted by sender
    roster: Annotated[tuple[Name, ...], Size(0, MAX_MEMBERS)]  # all peers, present or not, sorted
    relay: Annotated[str, Size(0, 64)] = ""  # who aggregates, where somebody does
    may_adopt: bool = False  # say whose state to adopt, rather than mix from another start


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take over the common start and the aggregator's memory of the round that was collected."""

    neighbour: Name
    snapshot: SnapshotRef


@dataclass(frozen=True, slots=True)
class Train:
    round_no: RoundNo
    slowness: Annotated[float, Range(1, 1e9)] = 1.0  # how many times longer it is to take


@dataclass(frozen=True, slots=True)
class Evaluate:
    round_no: RoundNo
    update: bool = False  # where the round began is needed until PUBLISH, which says the same


@dataclass(frozen=True, slots=True)
class Publish:
    round_no: RoundNo
    update: bool = False  # also start minus trained, for a relay
    kept: Annotated[int, Range(SNAPSHOTS_KEPT, MAX_KEPT)] = SNAPSHOTS_KEPT  # newest rounds on disk


@dataclass(frozen=True, slots=True)
class Alone:
    """After the run: train one model on the own data alone, with the same budget."""

    solver: Annotated[str, Size(1, 32)]  # "sgd", or "same" for the run's own


@dataclass(frozen=True, slots=True)
class Quit:
    pass


Command: TypeAlias = Prepare | Inspect | Mix | Adopt | Train | Evaluate | Publish | Alone | Quit

# -- replies ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy in [0, 1] and mean loss in nats on one split; -1 where the split is empty."""

    val_accuracy: Annotated[float, Range(-1, 1)]
    val_loss: _Number
    test_accuracy: Annotated[float, Range(-1, 1)]
    test_loss: _Number


@dataclass(frozen=True, slots=True)
class Prepared:
    schema: Digest  # of what is shared
    coded: Digest  # of the same as the run's codec writes it
    init: Digest  # of the initial parameters
    shared: Annotated[
        tuple[TensorSpec, ...], Size(0, MAX_TENSORS)
    ]  # digests are those of the initial model
    exchange: Exchange  # whom a round needs
    num_parameters: Annotated[int, Range(0, 2**48)]
    num_examples: Annotated[int, Range(0, 2**48)]
    class_counts: Annotated[tuple[int, ...], Size(0, 65536)]
    device: Text
    num_validation: Annotated[int, Range(0, 2**48)] = 0  # samples of the validation split
    num_held_out: Annotated[int, Range(0, 2**48)] = 0  # of those, taken from the training split
    stepped: Annotated[bytes, Size(0, 32)] = b""  # digest of the schema of steps, if there are any


@dataclass(frozen=True, slots=True)
class Inspected:
    neighbour: Name
    digest: Digest
    fault: Text  # empty: fit


@dataclass(frozen=True, slots=True)
class Weights:
    """What a mixer said of one contribution; -1 or empty where it said nothing."""

    sender: Name
    client_weight: _Number
    client_loss: _Number
    class_weight: Annotated[tuple[_Number, ...], Size(0, 65536)]


@dataclass(frozen=True, slots=True)
class Note:
    name: Name
    value: _Number


@dataclass(frozen=True, slots=True)
class Group:
    """What an aggregator says of one group of layers."""

    name: Annotated[str, Size(1, 200)]
    notes: Annotated[tuple[Note, ...], Size(0, 32)]


@dataclass(frozen=True, slots=True)
class Unused:
    """A contribution that was admitted, but is of another start."""

    sender: Name
    reason: Text


@dataclass(frozen=True, slots=True)
class MixDone:
    round_no: RoundNo
    weights: Annotated[tuple[Weights, ...], Size(0, MAX_MEMBERS)]
    notes: Annotated[tuple[Note, ...], Size(0, 64)]
    seconds: Seconds
    groups: Annotated[tuple[Group, ...], Size(0, 4096)] = ()
    unused: Annotated[tuple[Unused, ...], Size(0, MAX_MEMBERS)] = ()
    adopt: Annotated[str, Size(0, 64)] = ""  # nothing was mixed: first adopt the state of this one


@dataclass(frozen=True, slots=True)
class Adopted:
    neighbour: Name
    fault: Text  # empty: done


@dataclass(frozen=True, slots=True)
class TrainDone:
    round_no: RoundNo
    num_steps: Annotated[int, Range(0, 2**48)]
    loss: _Number  # mean over the steps of the round, nats
    seconds: Seconds
    epsilon: _Number = -1.0  # spent in all rounds so far; -1 where training is not private
    twin_seconds: Seconds = 0.0  # in which the twin was trained, beside them


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that might have been served, on the validation split."""

    name: Name
    share: Fraction  # of the second model, where it lies between two; else 1
    val_accuracy: Fraction
    val_loss: _Number
    wins: Annotated[int, Range(0, 2**48)]  # examples that it has right, and the round's result not
    defeats: Annotated[int, Range(0, 2**48)]  # the other way round


@dataclass(frozen=True, slots=True)
class Evaluated:
    round_no: RoundNo
    mixed: Score
    trained: Score
    own: Score  # of the model that the peer serves to its user
    served: Name  # which one that is: trained, personal, mixed, twin, or two with a + between
    seconds: Seconds
    twin: Annotated[tuple[Score, ...], Size(0, 1)] = ()  # of the model that is trained alone
    candidates: Annotated[tuple[Candidate, ...], Size(0, 64)] = ()


@dataclass(frozen=True, slots=True)
class Published:
    round_no: RoundNo
    snapshot: SnapshotRef
    content: Digest  # of layout and tensors alone: equal in two runs that learnt the same
    more: Annotated[tuple[SnapshotRef, ...], Size(0, 3)] = ()  # other parts of the same round
    # Digest that names the file of what the trainer remembers; empty: no disk took it.
    memory: Annotated[bytes, Size(0, 32)] = b""
    trouble: Text = ""  # what could not be written in this round, and why


@dataclass(frozen=True, slots=True)
class AloneDone:
    solver: Annotated[str, Size(1, 32)]
    score: Score
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Working:
    """A sign of life in the middle of a command."""

    phase: Annotated[str, Size(1, 16)]
    round_no: RoundNo
    fraction: Fraction
    eta_s: Seconds


@dataclass(frozen=True, slots=True)
class Failed:
    """The trainer cannot go on: its last words."""

    reason: Annotated[str, Size(0, 4000)]
    operator: bool  # a person must change something; otherwise it is a bug of ours


# One step of a round, as the round machine hears of it.
Step: TypeAlias = Working | Inspected | MixDone | Adopted | TrainDone | Evaluated | Published
Reply: TypeAlias = (
    Prepared
    | Inspected
    | MixDone
    | Adopted
    | TrainDone
    | Evaluated
    | Published
    | AloneDone
    | Working
    | Failed
)

# Codes may only be added: a node and its trainer come from one installation, but logs outlive both.
WORK: Codec[Command | Reply] = Codec(
    {
        1: Prepare,
        2: Inspect,
        3: Mix,
        4: Train,
        5: Evaluate,
        6: Publish,
        7: Alone,
        8: Quit,
        9: Adopt,
        32: Prepared,
        33: Inspected,
        34: MixDone,
        35: TrainDone,
        36: Evaluated,
        37: Published,
        38: AloneDone,
        39: Working,
        40: Failed,
        41: Adopted,
    },
    max_bytes=MAX_FRAME_BYTES,
)

"""Every message that crosses a link, one frozen class each. docs/wire.md is its prose.

Three closed sets, one for each kind of conversation:
`PeerMessage` between peers, `CoordinatorMessage` between a node and the coordinator, and the
documents (`SnapshotManifest`, `View`) that travel inside them as bytes, because they are hashed
or signed. No message between a node and the coordinator can hold a tensor: none has room for one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

from protocol.wire.fields import (
    Attempt,
    Count,
    Digest,
    Fraction,
    Key,
    Name,
    Nats,
    Range,
    Recurs,
    RoundNo,
    RunKey,
    Scalar,
    Seconds,
    Signature,
    Size,
    Text,
    Xid,
)

__all__ = [
    "MAX_MANIFEST_BYTES",
    "MAX_MEMBERS",
    "MAX_PIECE_BYTES",
    "MAX_REQUEST_BYTES",
    "MIN_PIECE_BYTES",
    "VIEW_PART_BYTES",
    "WIRE_VERSION",
    "Admitted",
    "Ask",
    "Bye",
    "Cancel",
    "CoordinatorMessage",
    "Credit",
    "Data",
    "Done",
    "DoneAck",
    "Epoch",
    "Err",
    "Get",
    "Hello",
    "Join",
    "Lease",
    "Leave",
    "Lift",
    "Member",
    "NewToken",
    "NotYet",
    "Offer",
    "Option",
    "Part",
    "PeerMessage",
    "Ready",
    "Refuse",
    "Renew",
    "Revoke",
    "Seen",
    "Settle",
    "ShowView",
    "SignedView",
    "SnapshotManifest",
    "TensorSpec",
    "Told",
    "View",
    "ViewPart",
    "Welcome",
    "Withdraw",
    "is_newer",
]

WIRE_VERSION = 1
MAX_REQUEST_BYTES = 4096  # anything that a client sends; every listening socket drops more
MAX_MANIFEST_BYTES = 1_000_000  # about 8,000 tensors
MAX_PIECE_BYTES = 1 << 20  # payload of one Data
MIN_PIECE_BYTES = 1 << 14
VIEW_PART_BYTES = 3584  # of a view that a node shows: the rest of a request takes less than 512
MAX_MEMBERS = 2048
MAX_TENSORS = 16384
MAX_OPTIONS = (
    96  # of a run: 96 x (64 + 500) characters would not fit a request; the codec checks both
)


class Part(StrEnum):
    """Which of a peer's snapshots of one round."""

    RESULT = "result"  # what it shares with its neighbours
    UPDATE = "update"  # start minus trained, for a relay whose start is not the peer's
    STATE = "state"  # the common start and the aggregator's memory, for one who lost them
    STEP = "step"  # what leads to the result from the one before it, for one who holds that


# -- documents ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a snapshot. Its place in the body follows from the order of the list."""

    section: Annotated[str, Size(1, 16)]  # params, buffers or extras
    name: Annotated[str, Size(1, 200)]
    dtype: Annotated[str, Size(1, 8)]  # one of layout.DTYPES
    shape: Annotated[tuple[Annotated[int, Range(0, 2**40)], ...], Size(0, 8)]
    digest: Digest  # of the tensor's bytes


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """What a snapshot is: its BLAKE3-256 (over the encoded bytes) is the snapshot's digest."""

    run: RunKey
    sender: Name
    part: Part
    round_no: RoundNo
    # Digest of the start point, empty for round 0; of a step, name of the result before it.
    base: Annotated[bytes, Size(0, 32)]
    memory: Annotated[bytes, Size(0, 32)]  # of the aggregator's memory there, if replicated
    degree: Annotated[int, Range(0, MAX_MEMBERS)]
    num_examples: Count
    num_steps: Count
    nova_a: Annotated[float, Range(0.0, 1e12)]
    lr: Annotated[float, Range(0.0, 1e6)]
    start_loss: Nats
    class_counts: Annotated[tuple[Count, ...], Size(0, 65536)]
    tensors: Annotated[tuple[TensorSpec, ...], Size(0, MAX_TENSORS)]


@dataclass(frozen=True, slots=True)
class Epoch:
    """Never goes back: a restarted coordinator has a higher incarnation."""

    incarnation: Annotated[int, Range(0, 2**48)]
    counter: Annotated[int, Range(0, 2**48)]


def is_newer(epoch: Epoch, other: Epoch) -> bool:
    return (epoch.incarnation, epoch.counter) > (other.incarnation, other.counter)


@dataclass(frozen=True, slots=True)
class Member:
    name: Name
    role: Annotated[str, Size(1, 16)]  # peer or relay
    state: Annotated[str, Size(1, 16)]  # joining, ready, lost (lease ran out), left, revoked
    address: Annotated[str, Size(0, 128)]  # tcp://HOST:PORT as others reach it
    curve_key: Key
    sign_key: Key
    round_no: RoundNo  # last one that it reported; a hint for the display, never for decisions


@dataclass(frozen=True, slots=True)
class Option:
    """One line of the run's manifest, e.g. solver.lr = 0.05."""

    key: Name
    value: Scalar


@dataclass(frozen=True, slots=True)
class View:
    """Who is a member, by the coordinator's word."""

    run: RunKey
    run_name: Name
    epoch: Epoch
    founders: Annotated[int, Range(1, MAX_MEMBERS)]  # peers that the lobby waits for
    founding: Annotated[
        tuple[Name, ...], Size(0, MAX_MEMBERS)
    ]  # round 1's roster; empty in the lobby
    members: Annotated[
        tuple[Member, ...], Size(0, MAX_MEMBERS), Recurs(2 * MAX_MEMBERS)
    ]  # sorted by name
    settled: bool = False  # whether `options` is the whole manifest
    options: Annotated[tuple[Option, ...], Size(0, MAX_OPTIONS)] = ()
    schema: Annotated[bytes, Size(0, 32)] = b""  # of what is shared; empty until a peer is ready
    init: Annotated[bytes, Size(0, 32)] = b""  # of the initial model; likewise


@dataclass(frozen=True, slots=True)
class SignedView:
    body: Annotated[bytes, Size(1, MAX_MANIFEST_BYTES)]  # an encoded View
    signature: Signature  # Ed25519, by the coordinator


# -- between peers ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """First message on a connection: do we speak the same language about the same run?"""

    version: Annotated[int, Range(0, 2**16)]
    run: RunKey
    sender: Name
    schema: Digest  # of names, shapes and dtypes of what is shared


@dataclass(frozen=True, slots=True)
class Welcome:
    sender: Name
    round_no: RoundNo  # newest that it serves; 0 while it has none


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Text  # names the line that differs; for a person


@dataclass(frozen=True, slots=True)
class Ask:
    """Have you this of `round_no`? Stands until answered by Offer; NotYet keeps it open."""

    run: RunKey
    part: Part
    round_no: RoundNo
    attempt: Attempt
    holds: Annotated[bytes, Size(0, 32)] = b""  # name of the newest result of yours that I have


@dataclass(frozen=True, slots=True)
class NotYet:
    run: RunKey
    round_no: RoundNo  # the one asked for
    attempt: Attempt
    at_round: RoundNo  # the one that the sender works on
    phase: Annotated[str, Size(1, 16)]  # lobby, collect, mix, train, evaluate, publish
    fraction: Fraction  # of that phase
    eta_s: Seconds  # until its result; 0 when it cannot tell


@dataclass(frozen=True, slots=True)
class Offer:
    run: RunKey
    round_no: RoundNo  # the one asked, or the newest when that one is gone
    attempt: Attempt
    manifest: Annotated[bytes, Size(1, MAX_MANIFEST_BYTES)]  # an encoded SnapshotManifest
    signature: Signature  # Ed25519, by the manifest's sender, over the snapshot's name
    # An encoded SnapshotManifest of the step that leads there from what the asker holds, if any.
    step: Annotated[bytes, Size(0, MAX_MANIFEST_BYTES)] = b""


@dataclass(frozen=True, slots=True)
class Get:
    """Send me bytes [offset, end) of the body of the snapshot with this digest.

    Every piece has `piece_bytes`, the last one what is left: the reader knows before a payload
    arrives how long it must be. Slow links ask for small pieces.
    """

    xid: Xid
    digest: Digest
    offset: Count
    end: Count
    piece_bytes: Annotated[int, Range(MIN_PIECE_BYTES, MAX_PIECE_BYTES)]
    credit: Annotated[int, Range(0, 2**31)]  # pieces that may be under way; clamped by the server


@dataclass(frozen=True, slots=True)
class Credit:
    xid: Xid
    pieces: Annotated[int, Range(1, 2**31)]


@dataclass(frozen=True, slots=True)
class Cancel:
    xid: Xid


@dataclass(frozen=True, slots=True)
class Data:
    """Followed by one raw frame: min(piece_bytes, end - offset) bytes of the Get."""

    xid: Xid
    offset: Count


@dataclass(frozen=True, slots=True)
class Err:
    xid: Xid
    reason: Text


@dataclass(frozen=True, slots=True)
class Done:
    """I need nothing more of you in this run."""

    run: RunKey


@dataclass(frozen=True, slots=True)
class DoneAck:
    run: RunKey


@dataclass(frozen=True, slots=True)
class Bye:
    reason: Text


@dataclass(frozen=True, slots=True)
class Seen:
    """My newest view is of this epoch: if you have a newer one, pass it on as a SignedView."""

    run: RunKey
    epoch: Epoch


PeerMessage: TypeAlias = (
    Hello
    | Welcome
    | Refuse
    | Ask
    | NotYet
    | Offer
    | Get
    | Credit
    | Cancel
    | Data
    | Err
    | Done
    | DoneAck
    | Bye
    | Seen
    | SignedView
)

# -- between a node and the coordinator ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    version: Annotated[int, Range(0, 2**16)]
    token: Annotated[bytes, Size(16, 16)]
    name: Name
    role: Annotated[str, Size(1, 16)]
    instance: Annotated[bytes, Size(8, 8)]  # random, one per process
    address: Annotated[str, Size(0, 128)]
    sign_key: Key
    wishes: Annotated[
        tuple[Option, ...], Size(0, MAX_OPTIONS)
    ]  # only what the person typed or the data fixes
    seen: Epoch = Epoch(0, 0)  # of the newest view that it has; a coordinator may have lost it


@dataclass(frozen=True, slots=True)
class Admitted:
    run: RunKey
    settled: bool  # False: `options` is what is fixed so far; answer with Settle
    options: Annotated[tuple[Option, ...], Size(0, MAX_OPTIONS)]
    lease_s: Seconds
    view: SignedView


@dataclass(frozen=True, slots=True)
class Settle:
    """The whole manifest, as a first peer would have it. The first one stands."""

    options: Annotated[tuple[Option, ...], Size(0, MAX_OPTIONS)]


@dataclass(frozen=True, slots=True)
class Ready:
    """My model is built from the manifest: these are its digests. The first one's stand."""

    schema: Digest
    init: Digest


@dataclass(frozen=True, slots=True)
class Renew:
    epoch: Epoch  # newest that I have seen
    round_no: RoundNo
    phase: Annotated[str, Size(1, 16)]


@dataclass(frozen=True, slots=True)
class Lease:
    lease_s: Seconds
    epoch: Epoch  # of the coordinator's view; a newer one follows as a SignedView of its own


@dataclass(frozen=True, slots=True)
class Leave:
    reason: Text


@dataclass(frozen=True, slots=True)
class Revoke:
    """Said with the coordinator's own key, as are the other orders: that member is out for good."""

    name: Name


@dataclass(frozen=True, slots=True)
class NewToken:
    token: Annotated[bytes, Size(16, 16)]
    until_s: Annotated[float, Range(0.0, 1e11)]  # since 1970; 0: for ever
    uses: Annotated[int, Range(0, 2**31)]  # nodes that it may let in; 0: any number


@dataclass(frozen=True, slots=True)
class Withdraw:
    """This token lets nobody in any more; who is in stays."""

    token: Annotated[str, Size(1, 16)]  # its name


@dataclass(frozen=True, slots=True)
class Lift:
    """Hear this key again, which was refused for what it sent."""

    whose: Annotated[str, Size(1, 64)]  # a member's name, or the first digits of the key in hex


@dataclass(frozen=True, slots=True)
class Told:
    """The order was carried out and written down."""

    text: Text


@dataclass(frozen=True, slots=True)
class ShowView:
    """You have seen a newer view than I have: send me what of it follows `offset`.

    With an offset at its end: it is here whole, say your Join again.
    """

    offset: Count


@dataclass(frozen=True, slots=True)
class ViewPart:
    offset: Count
    total: Annotated[int, Range(1, MAX_MANIFEST_BYTES)]  # bytes of the view
    signature: Signature  # of the whole
    chunk: Annotated[bytes, Size(1, VIEW_PART_BYTES)]


CoordinatorMessage: TypeAlias = (
    Join
    | Admitted
    | Settle
    | Ready
    | Renew
    | Lease
    | SignedView
    | Leave
    | Refuse
    | Revoke
    | NewToken
    | Withdraw
    | Lift
    | Told
    | ShowView
    | ViewPart
)

"""Two sides of a control conversation and what they say, for the tests of link and shelf."""

from protocol.ids import PeerId
from protocol.wire.codec import encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import schema_digest
from protocol.wire.link_effects import Answered
from protocol.wire.messages import (
    WIRE_VERSION,
    Ask,
    Hello,
    NotYet,
    Offer,
    Part,
    SnapshotManifest,
    TensorSpec,
    Welcome,
)
from protocol.wire.signing import sign_public, sign_snapshot

RUN = bytes(range(16))
OTHER_RUN = bytes(16)
A, B = PeerId("a"), PeerId("b")
SPECS = (
    TensorSpec("params", "w", "float32", (2, 3), bytes(32)),
    TensorSpec("buffers", "n", "int64", (), bytes(32)),
)
SCHEMA = schema_digest(SPECS)
HELLO = Hello(WIRE_VERSION, RUN, B, SCHEMA)  # b asks, a answers
SECRET = b"a" * 32  # what a signs with
SIGN_KEY = sign_public(SECRET)
WELCOME = Welcome(A, 0)


def manifest(round_no: int, *, sender: str = A, run: bytes = RUN) -> SnapshotManifest:
    return SnapshotManifest(
        run=run, sender=sender, part=Part.RESULT, round_no=round_no,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1,
        nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(), tensors=SPECS,
    )  # fmt: skip


def encoded(round_no: int) -> bytes:
    return encode_document(manifest(round_no))


def name_of(round_no: int) -> bytes:
    return digest(encoded(round_no))


def ask(round_no: int, attempt: int) -> Ask:
    return Ask(RUN, Part.RESULT, round_no, attempt)


def not_yet(round_no: int, attempt: int) -> NotYet:
    return NotYet(RUN, round_no, attempt, 2, "train", 0.5, 3.0)


def offer(round_no: int, attempt: int) -> Offer:
    return offer_of(encoded(round_no), attempt, round_no=round_no)


def offer_of(encoded_manifest: bytes, attempt: int, *, round_no: int = 1) -> Offer:
    """What a says of a manifest, with a's signature."""
    signature = sign_snapshot(SECRET, digest(encoded_manifest))
    return Offer(RUN, round_no, attempt, encoded_manifest, signature)


def answered(round_no: int) -> Answered:
    return Answered(round_no, manifest(round_no), name_of(round_no))

"""The bytes of every message, as they were when WIRE_VERSION was 1.

`messages.hex` holds one line for each example below: its class, then its bytes. A line may be
added; one that changes breaks every node that runs the version before: raise WIRE_VERSION.
"""

from pathlib import Path
from typing import Any

import pytest

from protocol.wire.codec import COORDINATOR, DOCUMENTS, PEER, Codec
from protocol.wire.layout import schema_digest
from protocol.wire.messages import (
    Admitted,
    Ask,
    Bye,
    Cancel,
    Credit,
    Data,
    Done,
    DoneAck,
    Epoch,
    Err,
    Get,
    Hello,
    Join,
    Lease,
    Leave,
    Lift,
    Member,
    NewToken,
    NotYet,
    Offer,
    Option,
    Part,
    Ready,
    Refuse,
    Renew,
    Revoke,
    Seen,
    Settle,
    ShowView,
    SignedView,
    SnapshotManifest,
    TensorSpec,
    Told,
    View,
    ViewPart,
    Welcome,
    Withdraw,
)

RUN = bytes(range(16))
KEY = bytes(range(32))
SPECS = (
    TensorSpec("params", "fc.weight", "float32", (10, 84), KEY),
    TensorSpec("buffers", "bn.num_batches_tracked", "int64", (), KEY),
)
VIEW = SignedView(b"\x91\x41", bytes(64))
OPTIONS = (Option("solver.lr", 0.05), Option("run.rounds", 60), Option("run.pace", "sync"))

EXAMPLES: dict[str, tuple[Codec[Any], tuple[Any, ...]]] = {
    "peer": (
        PEER,
        (
            Hello(1, RUN, "shard3", KEY),
            Welcome("shard4", 7),
            Refuse("wire version 2, shard4 speaks 1"),
            Ask(RUN, Part.RESULT, 8, 3, KEY),
            NotYet(RUN, 8, 3, 8, "train", 0.25, 12.5),
            Offer(RUN, 8, 3, b"manifest", bytes(64), b"step"),
            Get(1, KEY, 0, 44_426 * 4, 1 << 20, 4),
            Credit(1, 2),
            Cancel(1),
            Data(1, 1 << 20),
            Err(1, "no snapshot 000102030405 here, or no more"),
            Done(RUN),
            DoneAck(RUN),
            Bye("finished"),
            Seen(RUN, Epoch(1, 2)),
            VIEW,
        ),
    ),
    "coordinator": (
        COORDINATOR,
        (
            Join(
                1,
                RUN,
                "shard3",
                "peer",
                bytes(8),
                "tcp://192.0.2.7:40123",
                KEY,
                OPTIONS,
                Epoch(1, 2),
            ),
            Admitted(RUN, True, OPTIONS, 30.0, VIEW),
            Settle(OPTIONS),
            Ready(KEY, KEY),
            Renew(Epoch(1, 2), 7, "train"),
            Lease(30.0, Epoch(1, 2)),
            VIEW,
            Leave("finished"),
            Revoke("shard3"),
            NewToken(RUN, 1.8e9, 3),
            Withdraw("0badcafe"),
            Told("shard3 is revoked"),
            ShowView(3584),
            ViewPart(3584, 3600, bytes(64), b"rest of a view"),
            Lift("shard3"),
            Refuse("wrong token"),
        ),
    ),
    "documents": (
        DOCUMENTS,
        (
            SnapshotManifest(
                RUN,
                "shard3",
                Part.RESULT,
                8,
                KEY,
                b"",
                5,
                150,
                40,
                40.0,
                0.05,
                2.302585,
                (15, 15, 0),
                SPECS,
            ),
            View(
                RUN,
                "demo",
                Epoch(1, 2),
                2,
                ("shard3",),
                (Member("shard3", "peer", "ready", "tcp://192.0.2.7:40123", KEY, KEY, 7),),
                True,
                OPTIONS,
                KEY,
                KEY,
            ),
        ),
    ),
}
GOLDEN = Path(__file__).with_name("messages.hex").read_text().splitlines()


@pytest.mark.parametrize("conversation", EXAMPLES)
def test_every_message_has_its_golden_bytes(conversation: str) -> None:
    codec, examples = EXAMPLES[conversation]
    assert [type(example) for example in examples] == list(codec)
    for example in examples:
        line = f"{conversation} {type(example).__name__} {codec.encode(example).hex()}"
        assert line in GOLDEN
        assert codec.decode(bytes.fromhex(line.split()[2])) == example


def test_every_golden_line_has_its_message() -> None:
    assert len(GOLDEN) == sum(len(examples) for _, examples in EXAMPLES.values())


def test_the_digest_of_a_schema_does_not_change() -> None:
    assert schema_digest(SPECS).hex() == (
        "f22121ca75217bc3617982cb7dce8b003ee66e9eb2a40cb3532ed1d1097c8f7d"
    )

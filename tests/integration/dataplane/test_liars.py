"""A neighbour that lies as it serves: a pull ends with the right bytes, or fails and says why."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

from peer.dataplane.events import Event, Pulled, PullFailed
from peer.dataplane.puller import PullOrder
from protocol.clock import MonotonicClock
from protocol.transport.base import Listener
from protocol.transport.keys import Identity, new_identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    Bye,
    Data,
    Done,
    Get,
    Part,
    PeerMessage,
    SnapshotManifest,
    TensorSpec,
)
from tests.integration.dataplane.children import RUN, A, running
from tests.integration.dataplane.shop import WITHIN_S, Footprint, Tap, fetch, is_cut, pour, until

pytestmark = pytest.mark.usefixtures("tracked")

MIB = 1 << 20
PIECES = 8
BODY = Random(7).randbytes(PIECES * MAX_PIECE_BYTES)
SPEC = TensorSpec("params", "w", "uint8", (len(BODY),), digest(BODY))
MANIFEST = SnapshotManifest(
    run=RUN, sender=A, part=Part.RESULT, round_no=1, base=b"", memory=b"", degree=1,
    num_examples=1, num_steps=1, nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(),
    tensors=(SPEC,),
)  # fmt: skip
NAME = digest(encode_document(MANIFEST))


class Liar:
    """A neighbour's port, driven by hand: what it says to a Get is up to the test."""

    def __init__(self, stack: ExitStack, admitted: Identity) -> None:
        self.keys = new_identity()
        transport = ZeroMq(public_key=self.keys.curve_public, secret_key=self.keys.curve_secret)
        stack.callback(transport.close)
        self.listener: Listener = transport.listen(
            "tcp://127.0.0.1:0", admits=lambda key: key == admitted.curve_public
        )
        self.port = int(self.listener.address.rpartition(":")[2])
        self._poller = transport.poller()
        self._poller.add(self.listener)
        self._route = b""

    def serve(self, lie: "Lie", pipe: Connection) -> Event:
        """Answer each Get by the lie until the pull has ended."""
        self._poller.add(pipe.fileno())
        clock = MonotonicClock()
        end_s = clock.now_s() + WITHIN_S
        while not pipe.poll(0):
            assert clock.now_s() < end_s
            self._poller.poll(1.0)
            for get in self.gets():
                lie(self, get)
        event = pipe.recv()
        assert isinstance(event, Pulled | PullFailed)
        return event

    def gets(self) -> Iterator[Get]:
        while (arrival := self.listener.receive()) is not None:
            self._route = arrival.route
            message = PEER.decode(arrival.header)
            if isinstance(message, Get):
                yield message

    def say(self, message: PeerMessage, payload: bytes | None = None) -> None:
        content = memoryview(payload) if payload is not None else None
        self.listener.send(self._route, PEER.encode(message), content)

    def piece(self, get: Get, number: int) -> None:
        """A piece as it should be, the first one being where the Get begins."""
        start = get.offset + number * get.piece_bytes
        if start < get.end:
            end = min(start + get.piece_bytes, get.end)
            self.say(Data(get.xid, start), BODY[start:end])


Lie = Callable[[Liar, Get], None]


def all_of(liar: Liar, get: Get) -> None:
    for number in range(PIECES):
        liar.piece(get, number)


def twice(liar: Liar, get: Get) -> None:
    for number in range(PIECES):
        liar.piece(get, number)
        liar.piece(get, number)


def twice_over(liar: Liar, get: Get) -> None:
    all_of(liar, get)
    all_of(liar, get)


def backwards(liar: Liar, get: Get) -> None:
    for number in (3, 2, 1, 0):
        liar.piece(get, number)


def other_bytes(liar: Liar, get: Get) -> None:
    for start in range(get.offset, get.end, get.piece_bytes):
        liar.say(Data(get.xid, start), bytes(min(get.piece_bytes, get.end - start)))


def too_long(liar: Liar, get: Get) -> None:
    liar.say(Data(get.xid, get.offset), bytes(get.piece_bytes + 1))


def too_short(liar: Liar, get: Get) -> None:
    liar.say(Data(get.xid, get.offset), bytes(get.piece_bytes - 1))


def unasked(liar: Liar, get: Get) -> None:
    """First a flood of what nobody has asked for."""
    for number in range(64):
        offset = (0, 2**48 - 1, len(BODY), get.offset + 1)[number % 4]
        liar.say(Data(get.xid + number % 2, offset or 1), bytes(MAX_PIECE_BYTES))
    all_of(liar, get)


def another_word(liar: Liar, get: Get) -> None:
    liar.say(Done(RUN))


def a_word_with_a_payload(liar: Liar, get: Get) -> None:
    liar.say(Bye("tired"), bytes(100))


def no_message(liar: Liar, get: Get) -> None:
    liar.listener.send(liar._route, b"\xc1" * 1000)


@contextmanager
def pulling(liar: Liar, keys: Identity, folder: Path, address: str = "") -> Iterator[Connection]:
    """A process that pulls a's snapshot from the liar."""
    order = PullOrder(
        ticket=1,
        neighbour=A,
        address=address or liar.listener.address,
        server_key=liar.keys.curve_public,
        manifest=MANIFEST,
        digest=NAME,
        path=folder / "received",
    )
    with running(fetch, keys, order) as (pipe, _):
        yield pipe


def footprint(pipe: Connection) -> Footprint:
    pipe.send("footprint")
    assert pipe.poll(WITHIN_S)
    seen = pipe.recv()
    assert isinstance(seen, Footprint)
    return seen


def ended(lie: Lie, folder: Path) -> tuple[Event, Footprint]:
    """How a pull of this ends, and what it takes; if it is complete, it has the right bytes."""
    keys = new_identity()
    with ExitStack() as stack:
        liar = Liar(stack, keys)
        pipe = stack.enter_context(pulling(liar, keys, folder))
        event = liar.serve(lie, pipe)
        taken = footprint(pipe)
    if isinstance(event, Pulled):
        assert (folder / "received").read_bytes() == BODY
    return event, taken


@pytest.fixture(scope="module")
def honest(tracked: None, tmp_path_factory: pytest.TempPathFactory) -> Footprint:
    """What a pull takes where nobody lies."""
    event, taken = ended(all_of, tmp_path_factory.mktemp("honest"))
    assert event == Pulled(1, A, len(BODY))
    return taken


LIES = [
    twice, twice_over, backwards, other_bytes, too_long, too_short, unasked, another_word,
    a_word_with_a_payload, no_message,
]  # fmt: skip
WHY: dict[Lie, str] = {
    other_bytes: "tensor w does not have its digest",
    too_long: "broke the protocol: a piece that is not of 1048576 bytes",
    too_short: "broke the protocol: a piece that is not of 1048576 bytes",
    another_word: "broke the protocol: Done on a bulk connection",
    a_word_with_a_payload: "broke the protocol: a payload after Bye",
    no_message: "broke the protocol: ",
}


@pytest.mark.parametrize(
    "lie", [pytest.param(lie, marks=pytest.mark.long if at else []) for at, lie in enumerate(LIES)]
)
def test_a_pull_from_a_liar_ends_right_or_says_why_not(
    lie: Lie, honest: Footprint, tmp_path: Path
) -> None:
    event, taken = ended(lie, tmp_path)
    if lie in WHY:
        assert isinstance(event, PullFailed)
        assert WHY[lie] in event.reason
    else:
        assert event == Pulled(1, A, len(BODY))
    assert taken.resident_bytes - honest.resident_bytes <= 8 * MIB, (taken, honest)
    assert taken.threads <= honest.threads
    assert taken.descriptors <= honest.descriptors


def test_a_frame_of_two_gigabytes_from_whom_we_called_is_cut_at_its_header(tmp_path: Path) -> None:
    keys = new_identity()
    with ExitStack() as stack:
        liar = Liar(stack, keys)
        tap = Tap(stack, liar.port)
        pipe = stack.enter_context(pulling(liar, keys, tmp_path, tap.address))
        until(lambda: any(True for _ in liar.gets()))
        before = footprint(pipe)
        line = tap.turn()
        line.setblocking(True)
        line.sendall(b"\2" + (2 << 30).to_bytes(8))
        pour(line)
        assert footprint(pipe).resident_bytes - before.resident_bytes <= 4 * MIB
        assert is_cut(line)

"""A real server thread and a real puller thread move bodies over loopback with CURVE."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from peer.dataplane.events import (
    Crashed,
    Event,
    Misbehaved,
    PeerDone,
    Progressed,
    Pulled,
    PullFailed,
    Served,
)
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller, PullOrder
from peer.dataplane.server import Server
from peer.work import SnapshotRef
from protocol.clock import MonotonicClock
from protocol.errors import AddressError
from protocol.ids import PeerId
from protocol.transport.base import Caller, CallerEvent
from protocol.transport.keys import Identity, new_identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import Layout, schema_digest
from protocol.wire.messages import (
    WIRE_VERSION,
    Ask,
    Bye,
    Data,
    Done,
    DoneAck,
    Get,
    Hello,
    NotYet,
    Offer,
    Part,
    PeerMessage,
    Refuse,
    SnapshotManifest,
    TensorSpec,
    Welcome,
)
from protocol.wire.shelf import Status
from protocol.wire.signing import sign_snapshot
from tests.leaks import no_leaks  # noqa: F401 - a fixture

RUN = bytes(16)
A, B = PeerId("a"), PeerId("b")
WITHIN_S = 20.0  # a bound, not a wait
SHAPES = {"w": (1000, 1003), "b": (1003,), "n": (), "v": (2000, 2000)}  # 20 MB, with gaps

pytestmark = pytest.mark.usefixtures("no_leaks")


class Node:
    """One peer's data plane."""

    def __init__(self, name: PeerId, keys: Identity, stack: ExitStack) -> None:
        self.keys = keys
        self.transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
        stack.callback(self.transport.close)
        self.events: Inbox[Event] = Inbox(self.transport.wake())
        self.server = stack.enter_context(
            Server(
                self.transport,
                bind="tcp://127.0.0.1:0",
                name=name,
                sign_secret=keys.sign_secret,
                events=self.events,
            )
        )
        self.puller = stack.enter_context(Puller(self.transport, events=self.events))
        self.heard: list[Event] = []
        self._poller = self.transport.poller()
        self._poller.add(self.events.wake)

    def until(self, is_so: Callable[[Event], bool]) -> Event:
        """Wait for an event; a crash of a thread ends the test."""
        clock = MonotonicClock()
        until_s = clock.now_s() + WITHIN_S
        while True:
            for event in self.heard:
                assert not isinstance(event, Crashed), event
                if is_so(event):
                    return event
            assert clock.now_s() < until_s, self.heard
            self._poller.poll(until_s - clock.now_s())
            self.heard += self.events.drain()


class Talk:
    """A control conversation by hand."""

    def __init__(self, node: Node, to: Node) -> None:
        self._caller: Caller = node.transport.call(
            to.server.address, server_key=to.keys.curve_public
        )
        self._poller = node.transport.poller()
        self._poller.add(self._caller)

    def hear(self) -> PeerMessage | CallerEvent:
        while True:
            assert self._poller.poll(WITHIN_S)
            answer = self._caller.receive()
            if isinstance(answer, CallerEvent):
                return answer
            if isinstance(answer, bytes):
                return PEER.decode(answer)

    def hear_piece(self) -> PeerMessage:
        assert self._poller.poll(WITHIN_S)
        match self._caller.receive():
            case (bytes() as header, 0):
                return PEER.decode(header)
            case other:
                raise AssertionError(other)

    def say(self, message: PeerMessage) -> None:
        assert self._caller.send(PEER.encode(message))

    def say_bytes(self, header: bytes) -> None:
        assert self._caller.send(header)


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    with ExitStack() as stack:
        a = Node(A, new_identity(), stack)
        b = Node(B, new_identity(), stack)
        for node in (a, b):
            node.server.open(RUN, schema())
            node.server.members({a.keys.curve_public: A, b.keys.curve_public: B})
        yield a, b


def specs(body: bytes) -> tuple[TensorSpec, ...]:
    places = layout().places
    return tuple(
        TensorSpec("params", name, "float32", shape, digest(body[place.start : place.end]))
        for (name, shape), place in zip(SHAPES.items(), places, strict=True)
    )


def bare_specs() -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec("params", n, "float32", s, bytes(32)) for n, s in SHAPES.items())


def layout() -> Layout:
    return Layout.of(bare_specs())


def schema() -> bytes:
    return schema_digest(bare_specs())


def snapshot(path: Path, *, seed: int, round_no: int = 1) -> tuple[SnapshotRef, SnapshotManifest]:
    """A served file with 128 bytes before the body."""
    num_bytes = layout().body_bytes
    block = Random(seed).randbytes(1 << 16)
    body = (block * (num_bytes // len(block) + 1))[:num_bytes]
    path.write_bytes(bytes(128) + body)
    manifest = SnapshotManifest(
        run=RUN, sender=A, part=Part.RESULT, round_no=round_no,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1,
        nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(), tensors=specs(body),
    )  # fmt: skip
    encoded = encode_document(manifest)
    return SnapshotRef(encoded, digest(encoded), str(path), 128), manifest


def order(of: Node, manifest: SnapshotManifest, path: Path, *, ticket: int = 1) -> PullOrder:
    return PullOrder(
        ticket=ticket,
        neighbour=A,
        address=of.server.address,
        server_key=of.keys.curve_public,
        manifest=manifest,
        digest=digest(encode_document(manifest)),
        path=path,
    )


def pulled(ticket: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Pulled) and event.ticket == ticket


def test_a_body_of_20_mb_arrives_and_is_verified(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = nodes
    ref, manifest = snapshot(tmp_path / "served", seed=1)
    a.server.publish(ref, 1)
    b.puller.pull(order(a, manifest, tmp_path / "received"))
    whole = layout().body_bytes
    assert b.until(lambda e: isinstance(e, Pulled)) == Pulled(1, A, whole)
    sent, received = (tmp_path / name for name in ("served", "received"))
    assert received.read_bytes() == sent.read_bytes()[128:]
    a.until(lambda e: isinstance(e, Served))
    total = 0
    while total < layout().body_bytes:
        total = sum(e.num_bytes for e in a.heard if isinstance(e, Served) and e.peer == B)
        if total < layout().body_bytes:
            known = len(a.heard)
            a.until(lambda e, known=known: len(a.heard) > known)  # type: ignore[misc]
    assert total == layout().body_bytes


def test_a_buffer_is_used_again_for_a_body_of_another_size(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    (tmp_path / "received").write_bytes(bytes(layout().body_bytes + 4096))
    for round_no in (1, 2):
        ref, manifest = snapshot(tmp_path / f"served{round_no}", seed=round_no, round_no=round_no)
        a.server.publish(ref, round_no)
        b.puller.pull(order(a, manifest, tmp_path / "received", ticket=round_no))
        b.until(pulled(round_no))
        served = Path(ref.path).read_bytes()
        assert (tmp_path / "received").read_bytes() == served[128:]


def test_a_corrupt_body_is_refused(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = nodes
    ref, manifest = snapshot(tmp_path / "served", seed=1)
    with (tmp_path / "served").open("r+b") as file:
        file.seek(128 + layout().places[3].start + 12345)
        file.write(b"\0\1\2\3")
    a.server.publish(ref, 1)
    b.puller.pull(order(a, manifest, tmp_path / "received"))
    event = b.until(lambda e: isinstance(e, PullFailed | Pulled))
    assert event == PullFailed(1, A, "tensor v does not have its digest")


def test_a_snapshot_that_is_gone_is_told(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = nodes
    _, first = snapshot(tmp_path / "served1", seed=1)
    for round_no in (1, 2, 3):
        ref, _ = snapshot(tmp_path / f"served{round_no}", seed=round_no, round_no=round_no)
        a.server.publish(ref, round_no)
    b.puller.pull(order(a, first, tmp_path / "received"))
    event = b.until(lambda e: isinstance(e, PullFailed))
    assert isinstance(event, PullFailed)
    assert "refused: no snapshot" in event.reason


def test_a_revoked_key_is_cut_off_in_mid_transfer(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = nodes
    ref, manifest = snapshot(tmp_path / "served", seed=1)
    a.server.publish(ref, 1)
    revoked = Talk(b, a)
    assert revoked.hear() is CallerEvent.CONNECTED
    piece_bytes = 1 << 20
    revoked.say(Get(7, ref.digest, 0, layout().body_bytes, piece_bytes, 1))
    assert revoked.hear_piece() == Data(7, 0)
    a.server.members({a.keys.curve_public: A})
    assert revoked.hear() is CallerEvent.DISCONNECTED
    assert revoked.hear() is CallerEvent.REFUSED
    a.puller.pull(order(a, manifest, tmp_path / "mine", ticket=1))
    a.until(pulled(1))  # others are served meanwhile
    a.until(lambda e: isinstance(e, Served) and e.peer == A)
    assert sum(e.num_bytes for e in a.heard if isinstance(e, Served) and e.peer == B) == piece_bytes
    a.server.members({a.keys.curve_public: A, b.keys.curve_public: B})
    b.puller.pull(order(a, manifest, tmp_path / "received"))
    b.until(lambda e: isinstance(e, Pulled))  # admitted again, it is served again


def test_a_question_is_answered_now_or_as_soon_as_there_is_an_answer(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    a.server.status(Status(at_round=1, phase="train", fraction=0.5, eta_s=3.0))
    talk = Talk(b, a)
    assert talk.hear() is CallerEvent.CONNECTED
    talk.say(Hello(WIRE_VERSION, RUN, B, schema()))
    assert talk.hear() == Welcome(A, 0)
    talk.say(Ask(RUN, Part.RESULT, 1, 5))
    assert talk.hear() == NotYet(RUN, 1, 5, 1, "train", 0.5, 3.0)
    ref, _ = snapshot(tmp_path / "served", seed=1)
    a.server.publish(ref, 1)
    assert talk.hear() == Offer(
        RUN, 1, 5, ref.manifest, sign_snapshot(a.keys.sign_secret, ref.digest)
    )
    talk.say(Done(RUN))
    assert talk.hear() == DoneAck(RUN)
    assert a.until(lambda e: isinstance(e, PeerDone)) == PeerDone(B)
    a.server.leave("finished")
    assert talk.hear() == Bye("finished")


def test_a_greeting_under_another_name_is_refused(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    talk = Talk(b, a)
    assert talk.hear() is CallerEvent.CONNECTED
    talk.say(Hello(WIRE_VERSION, RUN, PeerId("c"), schema()))
    assert talk.hear() == Refuse("name c, but the key is b's")


def test_who_breaks_the_protocol_is_told_of_and_not_heard_for_a_while(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    talk = Talk(b, a)
    assert talk.hear() is CallerEvent.CONNECTED
    talk.say_bytes(b"\xc1junk")
    talk.say(Ask(RUN, Part.RESULT, 1, 1))
    event = a.until(lambda e: isinstance(e, Misbehaved))
    assert isinstance(event, Misbehaved)
    assert event.peer == B
    friend = Talk(a, a)
    assert friend.hear() is CallerEvent.CONNECTED
    friend.say(Ask(RUN, Part.RESULT, 1, 1))
    assert isinstance(friend.hear(), NotYet)  # others are heard


def test_a_peer_that_waits_for_the_run_to_open_is_answered_when_it_does() -> None:
    with ExitStack() as stack:
        a = Node(A, new_identity(), stack)
        a.server.members({a.keys.curve_public: A})
        talk = Talk(a, a)
        assert talk.hear() is CallerEvent.CONNECTED
        talk.say(Hello(WIRE_VERSION, RUN, A, schema()))
        a.server.open(RUN, schema())
        assert talk.hear() == Welcome(A, 0)


def test_a_cancelled_pull_frees_its_buffer_for_the_next(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    ref, manifest = snapshot(tmp_path / "served", seed=1)
    a.server.publish(ref, 1)
    b.puller.pull(order(a, manifest, tmp_path / "received", ticket=1))
    b.puller.cancel(1)
    b.puller.pull(order(a, manifest, tmp_path / "received", ticket=2))
    b.until(pulled(2))
    b.puller.hang_up(A)
    assert (tmp_path / "received").read_bytes() == (tmp_path / "served").read_bytes()[128:]


def test_a_full_or_missing_folder_fails_the_pull_alone(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    a, b = nodes
    ref, manifest = snapshot(tmp_path / "served", seed=1)
    a.server.publish(ref, 1)
    b.puller.pull(order(a, manifest, tmp_path / "missing" / "received", ticket=1))
    b.puller.pull(order(a, manifest, tmp_path / "received", ticket=2))
    b.until(lambda e: isinstance(e, PullFailed) and e.ticket == 1)
    b.until(pulled(2))


def test_a_restarted_server_finishes_what_it_began(tmp_path: Path) -> None:
    with ExitStack() as stack:
        b = Node(B, new_identity(), stack)
        keys = new_identity()
        names = {keys.curve_public: A, b.keys.curve_public: B}
        ref, manifest = snapshot(tmp_path / "served", seed=1)
        with ExitStack() as first:
            a = Node(A, keys, first)
            address = a.server.address
            b.puller.pull(order(a, manifest, tmp_path / "received"))
        transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
        stack.callback(transport.close)
        events: Inbox[Event] = Inbox(transport.wake())
        again = Server(transport, bind=address, name=A, sign_secret=keys.sign_secret, events=events)
        server = stack.enter_context(again)
        server.open(RUN, schema())
        server.members(names)
        server.publish(ref, 1)
        b.until(lambda e: isinstance(e, Pulled))


def test_a_port_in_use_is_the_operator_s_to_change() -> None:
    with ExitStack() as stack:
        a = Node(A, new_identity(), stack)
        transport = ZeroMq(public_key=a.keys.curve_public, secret_key=a.keys.curve_secret)
        stack.callback(transport.close)
        with (
            pytest.raises(AddressError, match="in use"),
            Server(
                transport,
                bind=a.server.address,
                name=A,
                sign_secret=a.keys.sign_secret,
                events=Inbox(transport.wake()),
            ),
        ):
            pass


def test_an_error_in_a_thread_reaches_the_node(tmp_path: Path) -> None:
    with ExitStack() as stack:
        a = Node(A, new_identity(), stack)
        a.server.open(RUN, schema())
        ref, _ = snapshot(tmp_path / "served", seed=1)
        (tmp_path / "served").unlink()
        a.server.publish(ref, 1)
        while not (events := tuple(a.events.drain())):
            assert a._poller.poll(WITHIN_S)
        (event,) = events
        assert isinstance(event, Crashed)
        assert event.thread == "server"
        assert isinstance(event.error, FileNotFoundError)


def test_progress_is_told(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = nodes
    ref, manifest = snapshot(tmp_path / "served", seed=1)
    a.server.publish(ref, 1)
    b.puller.pull(order(a, manifest, tmp_path / "received"))
    b.until(lambda e: isinstance(e, Pulled))
    told = [e.num_bytes for e in b.heard if isinstance(e, Progressed)]
    assert told == sorted(told)

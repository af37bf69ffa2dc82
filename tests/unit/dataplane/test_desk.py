"""What the server's thread does, in this thread and in virtual time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from peer.dataplane.desk import ARRIVALS_PER_TURN, MUTE_S, Desk
from peer.dataplane.events import Event, Misbehaved, PeerDone, Served
from peer.dataplane.inbox import Inbox
from protocol.ids import PeerId
from protocol.transport.base import Caller, CallerEvent
from protocol.wire.codec import PEER
from protocol.wire.messages import (
    WIRE_VERSION,
    Ask,
    Bye,
    Data,
    Done,
    DoneAck,
    Err,
    Get,
    Hello,
    NotYet,
    Offer,
    Part,
    PeerMessage,
    Welcome,
)
from protocol.wire.serving import IDLE_S
from protocol.wire.shelf import Shelf, Status
from protocol.wire.signing import sign_snapshot
from tests.unit.dataplane.nodes import (
    A_KEY,
    BODY,
    NAMES,
    RUN,
    SCHEMA,
    SECRET,
    A,
    B,
    Nodes,
    published,
)


class Rig:
    """The desk of a, and b at the counter."""

    def __init__(self, nodes: Nodes) -> None:
        self.events: Inbox[Event] = Inbox(nodes.a.wake())
        self.names: dict[bytes, PeerId] = dict(NAMES)
        self.listener = nodes.a.listen("tcp://a:1", admits=lambda _: True)
        self.desk = Desk(self.listener, names=lambda: self.names, events=self.events)
        self.desk.open(Shelf(run=RUN, name=A, schema=SCHEMA, sign_secret=SECRET))
        self._nodes = nodes
        self.caller = self.call()

    def call(self) -> Caller:
        caller = self._nodes.b.call("tcp://a:1", server_key=A_KEY)
        poller = self._nodes.b.poller()
        poller.add(caller)
        poller.poll(0.0)
        assert caller.receive() is CallerEvent.CONNECTED
        return caller

    def say(self, *messages: PeerMessage, now_s: float = 0.0) -> list[PeerMessage]:
        """Say something and hear what comes back."""
        for message in messages:
            assert self.caller.send(PEER.encode(message))
        self.desk.turn(now_s)
        return self.heard()

    def heard(self) -> list[PeerMessage]:
        heard = []
        while (answer := self.caller.receive()) is not None:
            assert not isinstance(answer, CallerEvent)
            heard.append(PEER.decode(answer[0] if isinstance(answer, tuple) else answer))
        return heard

    def told(self) -> list[Event]:
        return list(self.events.drain())


@pytest.fixture
def rig(nodes: Nodes) -> Iterator[Rig]:
    rig = Rig(nodes)
    yield rig
    rig.listener.close()


def get(xid: int, digest: bytes, *, credit: int = 4, piece_bytes: int = 1 << 14) -> Get:
    return Get(xid, digest, 0, len(BODY), piece_bytes, credit)


def test_a_body_is_served_in_pieces_and_told(rig: Rig, tmp_path: Path) -> None:
    ref = published(tmp_path)
    rig.desk.publish(ref, 1)
    pieces = rig.say(get(1, ref.digest, credit=16))
    rig.desk.turn(0.0)
    pieces += rig.heard()
    assert pieces == [Data(1, offset) for offset in range(0, len(BODY), 1 << 14)]
    assert rig.told() == []
    assert rig.desk.due_s == 1.0
    rig.desk.turn(1.0)
    assert rig.told() == [Served(B, len(BODY))]
    assert rig.desk.due_s is None


def test_those_who_wait_are_told_and_then_answered(rig: Rig, tmp_path: Path) -> None:
    rig.desk.status(Status(at_round=1, phase="mix"))
    word = NotYet(RUN, 1, 1, 1, "mix", 0.0, 0.0)
    assert rig.say(Ask(RUN, Part.RESULT, 1, 1)) == [word]
    assert rig.desk.due_s == 2.0
    rig.desk.turn(2.0)
    assert rig.heard() == [word]
    ref = published(tmp_path)
    rig.desk.publish(ref, 1)
    assert rig.heard() == [Offer(RUN, 1, 1, ref.manifest, sign_snapshot(SECRET, ref.digest))]


def test_the_last_two_snapshots_are_kept(rig: Rig, tmp_path: Path) -> None:
    refs = [published(tmp_path, round_no) for round_no in (1, 2, 3)]
    for round_no, ref in enumerate(refs, 1):
        rig.desk.publish(ref, round_no)
    answers = rig.say(*(get(xid, ref.digest, credit=1) for xid, ref in enumerate(refs)))
    assert isinstance(answers[0], Err)
    assert answers[1:] == [Data(1, 0), Data(2, 0)]
    assert len(rig.desk._bodies) == 2


def test_done_is_told_to_the_node(rig: Rig) -> None:
    assert rig.say(Done(RUN)) == [DoneAck(RUN)]
    assert rig.told() == [PeerDone(B)]


def test_nobody_is_answered_after_goodbye(rig: Rig, tmp_path: Path) -> None:
    hello = Hello(WIRE_VERSION, RUN, B, SCHEMA)
    assert rig.say(hello) == [Welcome(A, 0)]
    rig.desk.leave("finished")
    assert rig.heard() == [Bye("finished")]
    rig.desk.publish(published(tmp_path), 1)
    rig.desk.status(Status(at_round=1, phase="mix"))
    rig.desk.forget({})
    assert rig.say(hello) == []
    assert not rig.desk.is_open
    assert rig.desk.due_s is None


def test_a_key_that_belongs_to_nobody_is_not_answered(rig: Rig, tmp_path: Path) -> None:
    ref = published(tmp_path)
    rig.desk.publish(ref, 1)
    assert len(rig.say(Ask(RUN, Part.RESULT, 2, 1), get(1, ref.digest, credit=1))) == 2
    rig.names = {A_KEY: A}
    rig.desk.forget(NAMES)
    while rig.caller.receive() is not CallerEvent.DISCONNECTED:
        pass  # what was on its way
    rig.caller = rig.call()
    assert rig.say(Ask(RUN, Part.RESULT, 1, 2), get(2, ref.digest)) == []
    rig.desk.turn(2.0)
    assert rig.heard() == []


@pytest.mark.parametrize("header", [b"junk", PEER.encode(Welcome("b", 1)), PEER.encode(Data(1, 0))])
def test_who_breaks_the_protocol_is_told_once_and_not_heard_for_a_while(
    rig: Rig, header: bytes
) -> None:
    rig.say(Ask(RUN, Part.RESULT, 1, 1))
    rig.caller.send(header)
    rig.caller.send(header)
    assert rig.say(Ask(RUN, Part.RESULT, 1, 2), now_s=1.0) == []
    (event,) = rig.told()
    assert isinstance(event, Misbehaved)
    assert event.peer == B
    rig.desk.turn(2.0)
    assert rig.heard() == []  # the question that stood is forgotten too
    assert len(rig.say(Ask(RUN, Part.RESULT, 1, 3), now_s=1.0 + MUTE_S)) == 1


def test_a_flood_of_requests_does_not_stop_the_pieces(rig: Rig, tmp_path: Path) -> None:
    ref = published(tmp_path)
    rig.desk.publish(ref, 1)
    for _ in range(ARRIVALS_PER_TURN):
        rig.caller.send(PEER.encode(Done(RUN)))
    heard = rig.say(get(1, ref.digest, credit=1))
    assert heard.count(DoneAck(RUN)) == len(heard)
    assert rig.desk.due_s == 0.0
    rig.desk.turn(0.0)
    assert rig.heard() == [Data(1, 0)]


def test_a_reader_that_does_not_read_is_tried_again_and_one_that_left_is_dropped(
    rig: Rig, tmp_path: Path
) -> None:
    ref = published(tmp_path)
    rig.desk.publish(ref, 1)
    silent, rig.caller = rig.caller, rig.call()
    for xid in range(12):  # 12 x 7 pieces do not fit the pipe of 64
        silent.send(PEER.encode(get(xid, ref.digest, credit=16)))
        for turn in range(3):
            rig.desk.turn(0.05 * xid + 0.01 * turn)
    assert rig.desk.due_s is not None
    assert rig.desk.due_s > 0.5  # held, not spinning
    now_s = 1.0
    assert rig.say(get(1, ref.digest, credit=1), now_s=now_s) == [Data(1, 0)]
    silent.close()
    rig.desk.turn(now_s)  # finds the route gone
    rig.desk.turn(now_s + IDLE_S)  # and the other one without credit
    assert rig.desk._serving.due_s is None

"""What the puller's thread does, in this thread and in virtual time; only hashing has its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from peer.dataplane.events import Event, Progressed, Pulled, PullFailed
from peer.dataplane.hauls import MAX_HAULS, REACH_S, Hauls, PullOrder
from peer.dataplane.inbox import Inbox
from protocol.ids import PeerId
from protocol.transport.base import Arrival, Listener
from protocol.wire.codec import PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    Bye,
    Cancel,
    Data,
    Err,
    Get,
    Hello,
    PeerMessage,
    TensorSpec,
)
from tests.unit.dataplane.nodes import A_KEY, BODY, RUN, SCHEMA, A, B, Nodes, manifest, published

WITHIN_S = 10.0


class Rig:
    """Hauls of b, and a listener of a's that says what the test says."""

    def __init__(self, nodes: Nodes, hashers: ThreadPoolExecutor) -> None:
        self._poller = nodes.b.poller()
        self.events: Inbox[Event] = Inbox(nodes.b.wake())
        self._calls: Inbox[Callable[[], None]] = Inbox(nodes.b.wake())
        self._poller.add(self._calls.wake)
        self.hauls = Hauls(
            nodes.b,
            self._poller,
            hashers=hashers,
            events=self.events,
            call_back=self._calls.put,
        )
        self.listener: Listener = nodes.a.listen("tcp://a:1", admits=lambda _: True)

    def turn(self, now_s: float = 0.0, *, wait_s: float = 0.0) -> list[Event]:
        """One turn of the thread; what it told."""
        ready = self._poller.poll(wait_s)
        for call in self._calls.drain():
            call()
        self.hauls.turn(ready, now_s)
        return list(self.events.drain())

    def arrivals(self) -> list[tuple[Arrival, PeerMessage]]:
        heard = []
        while (arrival := self.listener.receive()) is not None:
            heard.append((arrival, PEER.decode(arrival.header)))
        return heard

    def get(self, now_s: float = 0.0) -> tuple[bytes, Get]:
        """Turn until a Get has come; its route."""
        for _ in range(3):
            self.turn(now_s)
            for arrival, message in self.arrivals():
                if isinstance(message, Get):
                    return arrival.route, message
        raise AssertionError("no Get")

    def end(self) -> Event:
        """Turn until a pull has ended; progress is passed over."""
        while True:
            for event in self.turn(wait_s=WITHIN_S):
                if not isinstance(event, Progressed):
                    return event

    def say(self, route: bytes, message: PeerMessage, payload: bytes | None = None) -> None:
        view = None if payload is None else memoryview(payload)
        self.listener.send(route, PEER.encode(message), view)


@pytest.fixture
def rig(nodes: Nodes) -> Iterator[Rig]:
    with ThreadPoolExecutor(1) as hashers:
        rig = Rig(nodes, hashers)
        yield rig
        rig.hauls.close()


def order(path: Path, *, ticket: int = 1, address: str = "tcp://a:1", of: PeerId = A) -> PullOrder:
    return PullOrder(
        ticket=ticket,
        neighbour=of,
        address=address,
        server_key=A_KEY,
        manifest=manifest(),
        digest=digest(encode_document(manifest())),
        path=path,
    )


def test_a_pull_ends_when_its_tensors_are_verified(rig: Rig, tmp_path: Path) -> None:
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    route, get = rig.get()
    assert (get.offset, get.end) == (0, len(BODY))
    rig.say(route, Data(get.xid, 0), BODY)
    assert rig.end() == Pulled(1, A, len(BODY))
    assert (tmp_path / "r").read_bytes() == BODY
    assert rig.hauls.due_s is None


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (
            lambda r, to, get: r.say(to, Data(get.xid, 0), BODY[:-1]),
            "a broke the protocol: a piece",
        ),
        (lambda r, to, get: r.say(to, Data(get.xid, 0)), "a broke the protocol: a piece that is"),
        (lambda r, to, get: r.say(to, Hello(1, RUN, A, SCHEMA)), "Hello on a bulk connection"),
        (lambda r, to, get: r.say(to, Bye("x"), b"payload"), "a payload after Bye"),
        (lambda r, to, get: r.listener.send(to, b"junk", memoryview(b"x")), "bad message"),
        (lambda r, to, get: r.listener.send(to, b"junk"), "bad message"),
        (lambda r, to, get: r.say(to, Err(get.xid, "gone")), "refused: gone"),
    ],
)
def test_a_neighbour_that_breaks_the_rules_fails_its_pull(
    rig: Rig, tmp_path: Path, say: Callable[[Rig, bytes, Get], None], why: str
) -> None:
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    say(rig, *rig.get())
    (event,) = rig.turn()
    assert isinstance(event, PullFailed)
    assert why in event.reason
    rig.hauls.order(order(tmp_path / "r", ticket=2), 1.0)  # and may be asked again
    rig.get(1.0)


def test_a_goodbye_is_left_to_the_control_link(rig: Rig, tmp_path: Path) -> None:
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    route, _ = rig.get()
    rig.say(route, Bye("finished"))
    assert rig.turn() == []


def test_a_neighbour_that_cannot_be_reached_is_given_up(rig: Rig, tmp_path: Path) -> None:
    rig.hauls.order(order(tmp_path / "r", address="tcp://nobody:1"), 5.0)
    assert rig.hauls.due_s == 5.0 + REACH_S
    assert rig.turn(64.9) == []
    assert rig.turn(65.0) == [PullFailed(1, A, "not reached for 60 s")]
    assert not (tmp_path / "r").exists()


def test_so_many_at_a_time_and_the_dead_keep_no_place(rig: Rig, tmp_path: Path) -> None:
    for ticket in range(MAX_HAULS):
        dead = order(tmp_path / f"d{ticket}", ticket=ticket, address="tcp://nobody:1", of=B)
        rig.hauls.order(dead, 0.0)
    for ticket in range(100, 100 + MAX_HAULS + 1):
        rig.hauls.order(order(tmp_path / f"r{ticket}", ticket=ticket), 0.0)
    rig.turn()
    rig.turn()
    gets = [message for _, message in rig.arrivals() if isinstance(message, Get)]
    assert len(gets) == MAX_HAULS
    rig.hauls.cancel(100, 1.0)
    heard = [message for _, message in rig.arrivals()]
    assert [type(message) for message in heard] == [Cancel, Get]


def test_a_neighbour_that_moved_is_called_where_it_is_now(rig: Rig, tmp_path: Path) -> None:
    old = order(tmp_path / "r", ticket=1, address="tcp://nobody:1")
    rig.hauls.order(old, 0.0)
    rig.hauls.order(order(tmp_path / "r", ticket=2), 1.0)
    assert rig.turn(1.0) == [PullFailed(1, A, "the neighbour has moved")]
    rig.get(1.0)


def test_hanging_up_fails_what_is_under_way(rig: Rig, tmp_path: Path) -> None:
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    rig.get()
    rig.hauls.hang_up(A, 1.0, reason="hung up")
    rig.hauls.hang_up(B, 1.0, reason="never known")
    assert rig.turn(1.0) == [PullFailed(1, A, "hung up")]


def test_a_lost_connection_is_resumed(rig: Rig, tmp_path: Path, nodes: Nodes) -> None:
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    rig.get()
    rig.listener.close()
    assert rig.turn(1.0) == []
    rig.listener = nodes.a.listen("tcp://a:1", admits=lambda _: True)
    route, get = rig.get(2.0)
    rig.say(route, Data(get.xid, 0), BODY[: get.piece_bytes])
    assert rig.end() == Pulled(1, A, len(BODY))


def test_a_cancelled_pull_is_not_told_of_again(rig: Rig, tmp_path: Path) -> None:
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    route, get = rig.get()
    rig.hauls.cancel(1, 1.0)
    assert [message for _, message in rig.arrivals()] == [Cancel(get.xid)]
    rig.say(route, Data(get.xid, 0), BODY)
    assert rig.turn(2.0) == []
    rig.hauls.order(order(tmp_path / "s", ticket=2, address="tcp://nobody:1"), 3.0)
    rig.hauls.cancel(2, 3.0)
    assert rig.turn(100.0) == []


def test_what_is_held_is_not_asked_for_again_by_whomever_it_came(
    rig: Rig, tmp_path: Path, nodes: Nodes
) -> None:
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    route, get = rig.get()
    rig.say(route, Data(get.xid, 0), BODY)
    assert rig.end() == Pulled(1, A, len(BODY))
    other = nodes.a.listen("tcp://b:1", admits=lambda _: True)
    rig.hauls.order(order(tmp_path / "s", ticket=2, address="tcp://b:1", of=B), 1.0)
    assert rig.end() == Pulled(2, B, 0)
    assert other.receive() is None
    assert (tmp_path / "s").read_bytes() == BODY
    rig.hauls.order(order(tmp_path / "r", ticket=3), 2.0)  # it lies there already
    assert rig.end() == Pulled(3, A, 0)
    assert [m for _, m in rig.arrivals() if isinstance(m, Get)] == []


def test_what_this_node_published_itself_is_not_fetched(rig: Rig, tmp_path: Path) -> None:
    rig.hauls.hold(published(tmp_path))
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    assert rig.end() == Pulled(1, A, 0)
    assert (tmp_path / "r").read_bytes() == BODY


def test_a_buffer_that_somebody_replaced_is_mapped_anew(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "r"
    for ticket in (1, 2):
        rig.hauls.order(order(path, ticket=ticket), 0.0)
        route, get = rig.get()
        rig.say(route, Data(get.xid, 0), BODY)
        assert rig.end() == Pulled(ticket, A, len(BODY))
        assert path.read_bytes() == BODY
        path.rename(tmp_path / f"kept{ticket}")
    assert (tmp_path / "kept1").read_bytes() == BODY


def test_a_held_copy_that_has_rotted_fails_once_and_is_then_fetched(
    rig: Rig, tmp_path: Path
) -> None:
    ref = published(tmp_path)
    rig.hauls.hold(ref)
    with Path(ref.path).open("r+b") as file:
        file.seek(70)
        file.write(b"rot")
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    assert rig.end() == PullFailed(1, A, "tensor w does not have its digest")
    rig.hauls.order(order(tmp_path / "r", ticket=2), 1.0)
    route, get = rig.get(1.0)
    rig.say(route, Data(get.xid, 0), BODY)
    assert rig.end() == Pulled(2, A, len(BODY))


@pytest.mark.long  # it waits until the first one is given up
def test_another_neighbour_finishes_what_one_began(rig: Rig, tmp_path: Path, nodes: Nodes) -> None:
    parts = [bytes([number]) * (2 * MAX_PIECE_BYTES) for number in (1, 2)]
    specs = tuple(
        TensorSpec("params", f"t{number}", "uint8", (len(part),), digest(part))
        for number, part in enumerate(parts)
    )
    rest = replace(manifest(), tensors=specs)
    rig.hauls.order(replace(order(tmp_path / "r"), manifest=rest), 0.0)
    route, get = rig.get()
    for number in range(3):
        offset = number * MAX_PIECE_BYTES
        piece = b"".join(parts)[offset : offset + MAX_PIECE_BYTES]
        rig.say(route, Data(get.xid, offset), piece)
        assert rig.turn(wait_s=WITHIN_S) == []
    while not any(haul.good for line in rig.hauls._lines.values() for haul in line.hauls):
        rig.turn(wait_s=WITHIN_S)
    rig.hauls.hang_up(A, 1.0, reason="it died")
    assert rig.end() == PullFailed(1, A, "it died")
    rig.listener = nodes.a.listen("tcp://b:1", admits=lambda _: True)
    other = order(tmp_path / "s", ticket=2, address="tcp://b:1", of=B)
    rig.hauls.order(replace(other, manifest=rest), 2.0)
    route, get = rig.get(2.0)
    assert (get.offset, get.end) == (2 * MAX_PIECE_BYTES, 4 * MAX_PIECE_BYTES)
    for number in range(2):
        rig.say(route, Data(get.xid, (2 + number) * MAX_PIECE_BYTES), parts[1][:MAX_PIECE_BYTES])
    assert rig.end() == Pulled(2, B, 2 * MAX_PIECE_BYTES)
    assert (tmp_path / "s").read_bytes() == b"".join(parts)

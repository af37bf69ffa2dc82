"""What the puller's thread does, in this thread and in virtual time; only hashing has its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.dataplane.checking import Workers
from peer.dataplane.events import Event, Progressed, Pulled, PullFailed
from peer.dataplane.haul import PullOrder
from peer.dataplane.hauls import MAX_HAULS, REACH_S, Hauls
from peer.dataplane.inbox import Inbox
from peer.dataplane.rebuilding import Rebuild
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.steps import STEPS, Stepper
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
    Part,
    PeerMessage,
    TensorSpec,
)
from tests.unit.dataplane.nodes import A_KEY, BODY, RUN, SCHEMA, A, B, Nodes, manifest, published

WITHIN_S = 10.0


class Rig:
    """Hauls of b, and a listener of a's that says what the test says."""

    def __init__(self, nodes: Nodes, hashers: Workers) -> None:
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
        for call in tuple(self._calls.drain()):  # what these begin is done in a later turn
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
    rig.hauls.order(order(tmp_path / "s", ticket=2), 1.0)
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


# -- steps --------------------------------------------------------------------------------------

STEP_CODECS = sorted(STEPS)


class Steps:
    """A matrix in two versions, and the step that leads from one to the other."""

    def __init__(self, codec: str, folder: Path) -> None:
        dice = np.random.default_rng(3)
        before, wanted = (dice.standard_normal((16, 500)).astype(np.float32) for _ in "12")
        stepper = Stepper(codec, 0.1, [TensorSpec("params", "w", "float32", (16, 500), b"")])
        found = stepper.encode(before, wanted)
        assert found is not None
        self.step, leads = found[0].tobytes(), found[1].tobytes()
        self.result = leads
        (coded,) = stepper.step_specs
        whole = replace(stepper._specs[0], digest=digest(leads))
        self.whole = replace(manifest(2), tensors=(whole,))
        (folder / "base").write_bytes(bytes(64) + before.tobytes())
        base = replace(manifest(1), tensors=(replace(whole, digest=digest(before.tobytes())),))
        named = encode_document(base)
        self.base = SnapshotRef(named, digest(named), str(folder / "base"), 64)
        moved = replace(coded, digest=digest(self.step))
        self.manifest = replace(
            manifest(2), part=Part.STEP, base=self.base.digest, tensors=(moved,)
        )

    def order(self, folder: Path, ticket: int = 1, **other: Any) -> PullOrder:
        made = replace(
            order(folder / "r.step", ticket=ticket),
            manifest=self.manifest,
            digest=digest(encode_document(self.manifest)),
            rebuild=Rebuild(base=self.base, manifest=self.whole, path=folder / "r"),
        )
        return replace(made, **other)


def bring(rig: Rig, body: bytes, now_s: float = 0.0) -> None:
    route, get = rig.get(now_s)
    assert (get.offset, get.end) == (0, len(body))
    rig.say(route, Data(get.xid, 0), body)


@pytest.mark.parametrize("codec", STEP_CODECS)
def test_a_step_becomes_the_whole_snapshot(rig: Rig, tmp_path: Path, codec: str) -> None:
    steps = Steps(codec, tmp_path)
    rig.hauls.order(steps.order(tmp_path), 0.0)
    bring(rig, steps.step)
    assert rig.end() == Pulled(1, A, len(steps.step))
    assert (tmp_path / "r").read_bytes() == steps.result
    # It counts as held: whoever has the same tensors need not send them.
    whole = replace(order(tmp_path / "s", ticket=2), manifest=steps.whole)
    rig.hauls.order(whole, 1.0)
    assert rig.end() == Pulled(2, A, 0)
    assert (tmp_path / "s").read_bytes() == steps.result


def test_a_step_that_leads_elsewhere_fails_and_the_whole_is_fetched(
    rig: Rig, tmp_path: Path
) -> None:
    steps = Steps("delta", tmp_path)
    (whole,) = steps.whole.tensors
    steps.whole = replace(steps.whole, tensors=(replace(whole, digest=digest(b"another")),))
    rig.hauls.order(steps.order(tmp_path), 0.0)
    bring(rig, steps.step)
    assert rig.end() == PullFailed(1, A, "the step of w does not lead to its digest")
    other = bytes(len(steps.result))
    again = replace(steps.whole, tensors=(replace(whole, digest=digest(other)),))
    rig.hauls.order(replace(order(tmp_path / "r", ticket=2), manifest=again), 1.0)
    bring(rig, other, 1.0)
    assert rig.end() == Pulled(2, A, len(other))
    assert (tmp_path / "r").read_bytes() == other


@pytest.mark.parametrize("codec", STEP_CODECS)
def test_a_step_that_no_sender_makes_fails_its_pull(rig: Rig, tmp_path: Path, codec: str) -> None:
    steps = Steps(codec, tmp_path)
    junk = b"\xff" * len(steps.step)  # scales that are no numbers; indexes below zero
    (moved,) = steps.manifest.tensors
    steps.manifest = replace(steps.manifest, tensors=(replace(moved, digest=digest(junk)),))
    rig.hauls.order(steps.order(tmp_path), 0.0)
    bring(rig, junk)
    event = rig.end()
    assert isinstance(event, PullFailed)
    assert event.reason.startswith("the step of params/w has ")


def test_a_base_that_has_rotted_or_gone_fails_the_pull(rig: Rig, tmp_path: Path) -> None:
    steps = Steps("delta", tmp_path)
    Path(steps.base.path).write_bytes(bytes(64) + bytes(len(steps.result)))
    rig.hauls.order(steps.order(tmp_path), 0.0)
    bring(rig, steps.step)
    assert rig.end() == PullFailed(1, A, "the step of w does not lead to its digest")
    Path(steps.base.path).write_bytes(b"short")
    rig.hauls.order(steps.order(tmp_path, 2), 2.0)
    event = rig.end()  # the step itself is held
    assert isinstance(event, PullFailed)
    assert "has 5 bytes, needs" in event.reason
    Path(steps.base.path).unlink()
    rig.hauls.order(steps.order(tmp_path, 3), 3.0)
    event = rig.end()
    assert isinstance(event, PullFailed)
    assert "No such file" in event.reason


def test_a_base_of_another_layout_fails_the_pull(rig: Rig, tmp_path: Path) -> None:
    steps = Steps("delta", tmp_path)
    steps.base = published(tmp_path)
    rig.hauls.order(steps.order(tmp_path), 0.0)
    bring(rig, steps.step)
    assert rig.end() == PullFailed(1, A, "a step between results of different layouts")


def test_a_step_cancelled_while_it_is_carried_out_is_not_told_of(rig: Rig, tmp_path: Path) -> None:
    steps = Steps("delta", tmp_path)
    rig.hauls.order(steps.order(tmp_path), 0.0)
    bring(rig, steps.step)
    while not rig.hauls._rebuilder._tickets:
        assert not [e for e in rig.turn(wait_s=WITHIN_S) if not isinstance(e, Progressed)]
    rig.hauls.cancel(1, 1.0)
    rig.hauls.order(steps.order(tmp_path, 2), 2.0)
    assert rig.end() == Pulled(2, A, 0)


def test_what_this_node_published_as_a_step_is_not_held(rig: Rig, tmp_path: Path) -> None:
    ref = published(tmp_path)
    for number in range(4):
        rig.hauls.hold(replace(ref, manifest=encode_document(replace(manifest(), part=Part.STEP))))
        if number == 0:
            rig.hauls.hold(ref)
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    assert rig.end() == Pulled(1, A, 0)  # the result has not been crowded out


def test_whoever_orders_a_buffer_ends_what_is_still_under_way_to_it(
    rig: Rig, tmp_path: Path
) -> None:
    """Else the late pieces of a pull that nobody waits for would land in what was checked."""
    rig.hauls.order(order(tmp_path / "r"), 0.0)
    route, old = rig.get()
    rig.hauls.order(order(tmp_path / "r", ticket=2), 1.0)
    assert rig.turn(1.0) == []
    (_, cancelled), (_, get) = rig.arrivals()
    assert cancelled == Cancel(old.xid)
    assert isinstance(get, Get)
    rig.say(route, Data(get.xid, 0), BODY)
    assert rig.end() == Pulled(2, A, len(BODY))
    rig.say(route, Data(old.xid, 0), bytes(len(BODY)))
    assert rig.turn(2.0) == []
    assert (tmp_path / "r").read_bytes() == BODY


def test_a_pull_that_waits_for_a_connection_gives_way_to_the_next_to_its_buffer(
    rig: Rig, tmp_path: Path
) -> None:
    rig.hauls.order(order(tmp_path / "r", address="tcp://nobody:1"), 0.0)
    rig.hauls.order(order(tmp_path / "r", ticket=2, address="tcp://nobody:1"), 1.0)
    assert rig.turn(1.0 + REACH_S) == [PullFailed(2, A, f"not reached for {REACH_S:.0f} s")]


class Later:
    """Workers that do what they are given when the test says so, in its thread."""

    def __init__(self) -> None:
        self.todo: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None], /) -> None:
        self.todo.append(work)

    def work(self) -> None:
        while self.todo:
            self.todo.pop(0)()


def brought(nodes: Nodes, steps: Steps, folder: Path) -> tuple[Rig, Later]:
    """A step that has come, and is about to be carried out."""
    later = Later()
    rig = Rig(nodes, later)
    rig.hauls.order(steps.order(folder), 0.0)
    bring(rig, steps.step)
    rig.turn()
    later.work()  # its digest
    assert not [event for event in rig.turn() if not isinstance(event, Progressed)]
    assert later.todo
    return rig, later


def test_a_step_is_not_carried_out_into_a_buffer_that_another_pull_fills(
    tmp_path: Path, nodes: Nodes
) -> None:
    steps = Steps("delta", tmp_path)
    Path(steps.base.path).write_bytes(bytes(64 + len(steps.result)))  # it would lead elsewhere
    rig, later = brought(nodes, steps, tmp_path)
    rig.hauls.order(replace(order(tmp_path / "r", ticket=2), manifest=steps.whole), 1.0)
    bring(rig, steps.result, 1.0)
    rig.turn(1.0)
    later.work()
    assert rig.end() == Pulled(2, A, len(steps.result))
    assert (tmp_path / "r").read_bytes() == steps.result
    rig.hauls.close()


def test_a_step_is_not_carried_out_once_all_is_closed(tmp_path: Path, nodes: Nodes) -> None:
    rig, later = brought(nodes, Steps("delta", tmp_path), tmp_path)
    before = (tmp_path / "r").read_bytes()
    rig.hauls.close()
    later.work()
    assert rig.turn() == []
    assert (tmp_path / "r").read_bytes() == before


def test_a_step_for_which_there_is_no_memory_fails_its_pull(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 1.00 GiB")

    rig, later = brought(nodes, Steps("delta", tmp_path), tmp_path)
    monkeypatch.setattr("peer.dataplane.rebuilding.advance", full)
    later.work()
    why = "no memory to carry out a step: Unable to allocate 1.00 GiB"
    assert rig.end() == PullFailed(1, A, why)
    rig.hauls.close()

"""The shell: what is written down before an answer leaves, and what happens on a full disk."""

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from coordinator.book import Book
from coordinator.directory import Directory
from coordinator.door import Door, Inbox
from coordinator.journal import Journal
from coordinator.refusals import MAX_STRANGERS, Refusal
from coordinator.runtime import RETRY_SAVE_S, SIGNALS_S, Runtime
from protocol.transport.base import Caller, CallerEvent, Pollable, Poller
from protocol.transport.memory import MemoryNetwork, MemoryTransport
from protocol.wire.codec import COORDINATOR
from protocol.wire.messages import Admitted, CoordinatorMessage, Lease, Lift, Renew, Told, View
from tests.unit.coordinator.town import LEASE_S, OPERATOR, RUN, SIGN_SECRET, TOKEN, A, B, C, Node

SERVER_KEY = b"k" * 32


class HandClock:
    """Moved by the test."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s


class ScarceJournal(Journal):
    """A disk that may be full."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_full = False

    def save(self, book: Book) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().save(book)


class WatchedPoller:
    """Notes how long it was told to wait."""

    def __init__(self, inner: Poller) -> None:
        self._inner = inner
        self.waits: list[float | None] = []

    def add(self, item: Pollable) -> None:
        self._inner.add(item)

    def discard(self, item: Pollable) -> None:
        self._inner.discard(item)

    def poll(self, timeout_s: float | None) -> Sequence[Pollable]:
        self.waits.append(timeout_s)
        return self._inner.poll(timeout_s)


class Hall:
    """A runtime over the memory transport, driven turn by turn."""

    def __init__(self, folder: Path, book: Book | None = None) -> None:
        self.network = MemoryNetwork()
        self.clock = HandClock()
        self.folder = folder
        self.journal = ScarceJournal(folder)
        self.shown: list[View] = []
        self.lines: list[Line] = []
        self.book = book or Book(run=RUN, run_name="hall", token=TOKEN, founders=2, incarnation=1)
        self.transport = MemoryTransport(self.network, key=SERVER_KEY)
        inbox = Inbox(self.transport.wake())
        self.listener = self.transport.listen(
            "tcp://host:7733",
            admits=lambda key: key not in self.book.refused,
            offended=inbox.tell,
        )
        self.stop = self.transport.wake()
        self.poller = WatchedPoller(self.transport.poller())
        self.directory = Directory(
            self.book,
            sign_secret=SIGN_SECRET,
            lease_s=LEASE_S,
            now_s=self.clock.now_s(),
            operator=OPERATOR.key,
            since_1970_s=lambda: 1.8e9,
        )
        self.runtime = Runtime(
            directory=self.directory,
            book=self.book,
            journal=self.journal,
            door=Door(self.listener, inbox),
            poller=self.poller,
            stop=self.stop,
            clock=self.clock,
            show=self.shown.append,
        )

    def line(self, node: Node) -> "Line":
        line = Line(self.network, node)
        self.lines.append(line)
        return line

    def close(self) -> None:
        for line in self.lines:
            line.transport.close()
        self.transport.close()

    def restarted(self) -> "Hall":
        """Another process over what the journal has."""
        loaded = self.journal.load()
        assert loaded is not None
        return Hall(self.folder, loaded.book)

    def saved_names(self) -> list[str]:
        loaded = self.journal.load()
        return list(loaded.book.entries) if loaded else []


class Line:
    """A node's connection to the hall."""

    def __init__(self, network: MemoryNetwork, node: Node) -> None:
        self.transport = MemoryTransport(network, key=node.key)
        self.caller: Caller = self.transport.call("tcp://host:7733", server_key=SERVER_KEY)
        self.poller: Poller = self.transport.poller()
        self.poller.add(self.caller)
        self.poller.poll(0.0)
        self.first = self.caller.receive()

    def say(self, message: CoordinatorMessage) -> None:
        assert self.first is CallerEvent.CONNECTED
        assert self.caller.send(COORDINATOR.encode(message))

    def heard(self) -> list[type]:
        kinds = []
        while (got := self.caller.receive()) is not None:
            if got is CallerEvent.DISCONNECTED:
                continue
            assert isinstance(got, bytes)
            kinds.append(type(COORDINATOR.decode(got)))
        return kinds


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    hall = Hall(tmp_path)
    yield hall
    hall.close()


def test_who_is_answered_stands_in_the_journal(hall: Hall) -> None:
    line = hall.line(A)
    line.say(A.join())
    assert hall.runtime.turn()
    assert line.heard() == [Admitted]
    assert hall.saved_names() == ["a"]
    assert [member.name for member in hall.shown[-1].members] == ["a"]


def test_on_a_full_disk_nobody_is_answered_until_it_has_room(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    line = hall.line(A)
    hall.journal.is_full = True
    line.say(A.join())
    hall.runtime.turn()
    assert line.heard() == []
    assert "journal not written, nobody is answered: [Errno 28] No space left" in caplog.text
    line.say(Renew(hall.directory.epoch, 0, "lobby"))
    hall.runtime.turn()
    assert line.heard() == []  # nothing new to write, but the last is not yet written
    hall.journal.is_full = False
    hall.clock.at_s = RETRY_SAVE_S
    hall.runtime.turn()
    assert hall.saved_names() == ["a"]
    line.say(A.join())  # a node asks again
    hall.runtime.turn()
    assert line.heard() == [Admitted]


def test_many_arrivals_share_one_turn(hall: Hall) -> None:
    first, second = hall.line(A), hall.line(B)
    first.say(A.join())
    second.say(B.join())
    hall.runtime.turn()
    assert first.heard()[0] is Admitted
    assert second.heard() == [Admitted]
    assert hall.saved_names() == ["a", "b"]


def test_a_connection_that_is_gone_is_forgotten(hall: Hall) -> None:
    line = hall.line(A)
    line.say(A.join())
    hall.runtime.turn()
    line.transport.close()
    other = hall.line(B)
    other.say(B.join())  # the change is pushed to a, which is not there
    hall.runtime.turn()
    assert hall.directory.sizes()["sessions"] == 1


def test_time_alone_makes_a_lease_run_out(hall: Hall) -> None:
    line = hall.line(A)
    line.say(A.join())
    hall.runtime.turn()
    hall.clock.at_s = LEASE_S
    hall.runtime.turn()
    assert hall.shown[-1].members[0].state == "lost"


def test_a_renewal_that_changes_nothing_writes_nothing(hall: Hall) -> None:
    line = hall.line(A)
    line.say(A.join())
    hall.runtime.turn()
    line.heard()
    hall.journal.is_full = True
    line.say(Renew(hall.directory.epoch, 0, "lobby"))
    hall.runtime.turn()
    assert line.heard() == [Lease]


def test_a_run_without_leases_still_looks_for_signals_now_and_then(hall: Hall) -> None:
    line = hall.line(A)
    line.say(A.join())
    hall.runtime.turn()
    hall.clock.at_s = LEASE_S
    hall.runtime.turn()  # the only lease ran out
    hall.stop.set()
    hall.runtime.run()
    assert hall.poller.waits == [0.0, 0.0, SIGNALS_S]


def test_who_is_shut_out_for_what_it_sent_is_refused_by_the_next_process_too(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    line, other = hall.line(A), hall.line(B)
    line.say(A.join())
    hall.runtime.turn()
    hall.listener.ban(A.key, "16 MiB of a message without an end")
    hall.listener.ban(C.key, "likewise")  # a stranger's
    hall.runtime.turn()
    assert f"a (key {A.key.hex()[:16]}) is refused from now on: 16 MiB of a message" in caplog.text
    assert f"a stranger (key {C.key.hex()[:16]}) is refused from now on: likewise" in caplog.text
    again = hall.restarted()
    assert list(again.book.refused.values()) == [
        Refusal(A.key, "16 MiB of a message without an end", 1.8e9),
        Refusal(C.key, "likewise", 1.8e9),
    ]
    assert [again.line(node).first for node in (A, B, C)] == [
        CallerEvent.REFUSED,
        CallerEvent.CONNECTED,
        CallerEvent.REFUSED,
    ]
    again.close()
    other.say(B.join())
    hall.runtime.turn()
    assert other.heard() == [Admitted]


def test_a_refusal_is_lifted_at_once_by_name_and_by_key(hall: Hall) -> None:
    hall.line(A).say(A.join())
    hall.runtime.turn()
    operator = hall.line(OPERATOR)
    for key in (A.key, C.key):
        hall.listener.ban(key, "too much")
    hall.runtime.turn()
    for whose, node in (("a", A), (C.key.hex()[:12], C)):
        assert hall.line(node).first is CallerEvent.REFUSED
        operator.say(Lift(whose))
        hall.runtime.turn()
        assert operator.heard() == [Told]
        assert hall.line(node).first is CallerEvent.CONNECTED
    again = hall.restarted()
    assert again.book.refused == {}
    again.close()


def test_the_operators_own_key_is_never_shut_out(hall: Hall) -> None:
    hall.line(A).say(A.join())
    hall.runtime.turn()
    for key in (A.key, OPERATOR.key):  # the latter by a stranger from the same address
        hall.listener.ban(key, "too much")
    hall.runtime.turn()
    assert list(hall.book.refused) == [A.key]
    operator = hall.line(OPERATOR)
    assert operator.first is CallerEvent.CONNECTED
    operator.say(Lift("a"))
    hall.runtime.turn()
    assert operator.heard() == [Told]


def test_on_a_full_disk_a_refusal_holds_and_is_written_once_there_is_room(hall: Hall) -> None:
    hall.line(A).say(A.join())
    hall.runtime.turn()
    hall.journal.is_full = True
    hall.listener.ban(A.key, "too much")
    hall.runtime.turn()
    assert hall.line(A).first is CallerEvent.REFUSED
    loaded = hall.journal.load()
    assert loaded is not None
    assert loaded.book.refused == {}
    hall.journal.is_full = False
    hall.clock.at_s = RETRY_SAVE_S
    hall.runtime.turn()
    again = hall.restarted()
    assert list(again.book.refused) == [A.key]
    again.close()


def test_strangers_that_are_forgotten_are_heard_again(hall: Hall) -> None:
    hall.line(A).say(A.join())
    hall.runtime.turn()
    keys = [number.to_bytes(32) for number in range(MAX_STRANGERS + 1)]
    for key in (A.key, *keys):
        hall.listener.ban(key, "too much")
    hall.runtime.turn()
    assert list(hall.book.refused) == [A.key, *keys[1:]]  # a member's is not pushed out
    assert hall.line(B.but(key=keys[0])).first is CallerEvent.CONNECTED
    assert hall.line(B.but(key=keys[1])).first is CallerEvent.REFUSED
    assert hall.line(A).first is CallerEvent.REFUSED


def test_it_stops_when_told(hall: Hall) -> None:
    hall.stop.set()
    hall.runtime.run()

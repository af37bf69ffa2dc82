"""Faults on a transport: what is cut, held up, lost and changed, at instants that the test sets."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from protocol.transport.base import CallerEvent, Listener, Sent
from protocol.transport.chaos import Chaos
from protocol.transport.memory import MemoryNetwork, MemoryTransport
from protocol.transport.ways import CALM, Way

SERVER_KEY, CLIENT_KEY = bytes(31) + b"\1", bytes(31) + b"\2"


@dataclass
class Sky:
    """A clock and the weather at once: both stand until the test moves them."""

    at_s: float = 0.0
    there: Way = CALM
    back: Way = CALM

    def now_s(self) -> float:
        return self.at_s

    def ways(self, key: bytes, now_s: float) -> tuple[Way, Way]:
        assert key in {SERVER_KEY, CLIENT_KEY}
        return self.there, self.back


class Post:
    """A listener, and a caller in the weather."""

    def __init__(self, seed: bytes = b"seed") -> None:
        network = MemoryNetwork()
        self.sky = Sky()  # of the caller
        self.theirs = Sky()  # of the listener
        self._server = MemoryTransport(network, key=SERVER_KEY)
        self._client = MemoryTransport(network, key=CLIENT_KEY)
        chaos = Chaos(self._client, self.sky, clock=self.sky, seed=seed)
        under = Chaos(self._server, self.theirs, clock=self.theirs, seed=seed)
        self.listener: Listener = under.listen("tcp://here:0", admits=lambda _: True)
        self.caller = chaos.call(self.listener.address, server_key=SERVER_KEY)
        self.poller = chaos.poller()
        self.poller.add(self.caller)
        self.connect()

    def connect(self) -> None:
        """Until it is told; the network in memory connects whenever it is polled."""
        assert list(self.poller.poll(None)) == [self.caller]
        assert self.caller.receive() is CallerEvent.CONNECTED

    def heard(self) -> list[bytes]:
        found = []
        while (arrival := self.listener.receive()) is not None:
            found.append(arrival.header)
            self.route = arrival.route
        return found

    def close(self) -> None:
        self._client.close()
        self._server.close()


@pytest.fixture
def post() -> Iterator[Post]:
    made = Post()
    yield made
    made.close()


def test_a_delay_holds_each_message_up_in_both_directions(post: Post) -> None:
    post.sky.there = post.theirs.there = Way(delay_s=2.0)
    assert post.caller.send(b"question")
    assert post.heard() == []
    post.sky.at_s = 2.0
    assert post.caller.receive() is None  # whoever looks lets go what is due
    assert post.heard() == [b"question"]
    post.listener.send(post.route, b"answer")
    post.theirs.at_s = 1.9
    post.listener.receive()
    assert post.caller.receive() is None
    post.theirs.at_s = 2.0
    post.listener.receive()
    assert post.caller.receive() == b"answer"


def test_messages_stay_in_order_whatever_jitter_draws(post: Post) -> None:
    post.sky.there = Way(jitter_s=5.0)
    sent = [bytes([number]) for number in range(20)]
    for message in sent:
        assert post.caller.send(message)
    assert post.heard() != sent
    post.sky.at_s = 5.0
    post.caller.receive()
    assert post.heard() == sent


def test_bandwidth_is_shared_by_what_is_sent_one_after_another(post: Post) -> None:
    post.sky.there = Way(mbit=0.008)  # a thousand bytes a second
    for _ in range(3):
        post.caller.send(bytes(500))
    arrived = []
    for half_s in range(4):
        post.sky.at_s = half_s / 2
        post.caller.receive()
        arrived.append(len(post.heard()))
    assert arrived == [0, 1, 1, 1]


def test_an_answer_is_held_up_by_whoever_gives_it_its_payload_too(post: Post) -> None:
    assert post.caller.send(b"hello")
    post.heard()
    post.theirs.there = Way(mbit=0.008, delay_s=1.0)  # a thousand bytes a second
    room = bytearray(500)
    for mark in (b"1", b"2"):
        assert post.listener.send(post.route, mark, memoryview(mark * 499)) is Sent.YES
    post.theirs.there = CALM
    assert post.listener.send(post.route, b"3") is Sent.YES  # in order: it waits for those before
    arrived = []
    for half_s in range(6):
        post.sky.at_s = post.theirs.at_s = half_s / 2
        post.listener.receive()
        while (answer := post.caller.receive(lambda _: memoryview(room)[:499])) is not None:
            arrived.append((half_s / 2, answer))
    assert arrived == [(1.5, (b"1", 499)), (2.0, (b"2", 499)), (2.0, b"3")]
    assert room[:499] == b"2" * 499


def test_a_sender_that_nobody_hears_is_told_that_its_way_is_full(post: Post) -> None:
    assert post.caller.send(b"hello")
    post.heard()
    post.theirs.there = Way(delay_s=1.0)
    sent = [post.listener.send(post.route, b"more") for _ in range(100)]
    assert sent == [Sent.YES] * 64 + [Sent.FULL] * 36


def test_a_cut_closes_the_connection_and_its_end_opens_another(post: Post) -> None:
    assert post.caller.send(b"before")
    post.heard()
    before = post.route
    post.sky.back = Way(is_cut=True)  # one way is enough: a stream needs both
    assert list(post.poller.poll(None)) == [post.caller]
    assert post.caller.receive() is CallerEvent.DISCONNECTED
    assert post.caller.receive() is None  # once
    assert not post.caller.send(b"during")
    post.sky.back = CALM
    assert not post.caller.send(b"too early")
    post.connect()
    assert post.caller.send(b"after")
    assert post.heard() == [b"after"]
    assert post.route != before


def test_what_is_on_its_way_when_a_cut_comes_is_lost(post: Post) -> None:
    post.sky.there = Way(delay_s=1.0)
    post.caller.send(b"on its way")
    post.sky.there = Way(is_cut=True)
    assert post.caller.receive() is CallerEvent.DISCONNECTED
    post.sky.at_s, post.sky.there = 9.0, CALM
    post.connect()
    assert post.heard() == []


@pytest.mark.parametrize("direction", ["there", "back"])
def test_a_lost_message_takes_its_connection_with_it(post: Post, direction: str) -> None:
    assert post.caller.send(b"hello")
    post.heard()
    setattr(post.sky, direction, Way(loss=1.0))
    if direction == "there":
        assert post.caller.send(b"lost")
    else:
        post.listener.send(post.route, b"lost")
    assert post.caller.receive() is CallerEvent.DISCONNECTED
    setattr(post.sky, direction, CALM)
    post.connect()
    assert post.heard() == []
    assert post.caller.receive() is None


@pytest.mark.parametrize("payload", [None, b"x" * 1000])
def test_what_is_corrupt_arrives_with_one_bit_changed(post: Post, payload: bytes | None) -> None:
    assert post.caller.send(b"hello")
    post.heard()
    post.sky.back = Way(corrupt=1.0)
    room = bytearray(1000)
    post.listener.send(post.route, b"head", None if payload is None else memoryview(payload))
    heard = post.caller.receive(lambda _: memoryview(room))
    header = heard[0] if isinstance(heard, tuple) else heard
    assert isinstance(header, bytes)
    seen, sent = header + (bytes(room) if payload else b""), b"head" + (payload or b"")
    assert sum((a ^ b).bit_count() for a, b in zip(seen, sent, strict=True)) == 1


def test_chance_follows_the_seed_and_the_rate() -> None:
    def losses(seed: bytes) -> list[bool]:
        post = Post(seed)
        told = []
        for _ in range(200):
            post.sky.there = Way(loss=0.25)
            post.caller.send(b"x")
            told.append(post.caller.receive() is CallerEvent.DISCONNECTED)
            post.sky.there = CALM
            if told[-1]:
                post.connect()
        post.close()
        return told

    first = losses(b"a")
    assert losses(b"a") == first
    assert losses(b"b") != first
    assert 30 <= Counter(first)[True] <= 70  # 50 expected, four deviations either way

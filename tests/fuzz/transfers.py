"""Targets `pull` and `desk`: the two sides of a transfer, and all that a peer's own port answers.

What is played: messages in and out of order, twice, again from another connection or key, with
claims of any size, and bytes that are no message; time, full pipes, dead routes and revocations in
between.
"""

import os
from collections import deque
from collections.abc import Mapping
from functools import cache

from peer.dataplane.desk import Desk
from peer.dataplane.events import Event
from peer.work import SnapshotRef
from protocol.errors import RemoteProtocolError
from protocol.ids import PeerId
from protocol.transport.base import Arrival, Sent
from protocol.wire.codec import PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    MIN_PIECE_BYTES,
    Ask,
    Bye,
    Cancel,
    Credit,
    Data,
    Done,
    Epoch,
    Err,
    Get,
    Hello,
    Part,
    PeerMessage,
    Seen,
)
from protocol.wire.shelf import ROUTES_PER_PEER, Shelf, Status
from tests.fuzz.feed import Feed
from tests.property.victim import SIZES, Victim, check_serving
from tests.unit.dataplane.nodes import BODY, RUN, SCHEMA, SECRET, A, manifest

HUGE = (2**31, 2**31 - 1, 2**48, 2**32)

# -- the taking side ---------------------------------------------------------------------------


def pull(data: bytes) -> None:
    """A pull of up to four tensors of a neighbour that says anything."""
    feed = Feed(data)
    sizes = [feed.pick(SIZES) for _ in range(1 + feed.byte() % 4)]
    victim = Victim(sizes, feed.byte())
    while not feed.is_over:
        with victim.judging():
            _suffer(victim, feed)
    victim.check()


def _suffer(victim: Victim, feed: Feed) -> None:
    match feed.byte() % 8:
        case 0:
            message = PEER.decode(feed.block())
            if not isinstance(message, Data | Err):
                raise RemoteProtocolError(type(message).__name__)
            victim.suffer("says", message, feed.byte() - 1)
        case 1 | 2:  # the piece that is due, whole
            victim.suffer("data", 0, None, 0)
        case 3:
            offset = feed.pick((None, 0, MIN_PIECE_BYTES, feed.number(3), *HUGE))
            victim.suffer("data", feed.byte() % 13, offset, feed.pick((0, 0, 0, -1, 7)))
        case 4:
            victim.suffer("connected" if feed.byte() % 2 else "disconnected")
        case 5:
            victim.suffer("wait", feed.pick((0.1, 5.0, 6.0, 59.0, 61.0)))
        case 6:
            victim.suffer("verified", feed.byte() % 4, feed.byte() != 0)
        case _:
            victim.suffer("err", feed.byte() % 13)


# -- the giving side ---------------------------------------------------------------------------

MEMBERS: Mapping[bytes, PeerId] = {bytes([n]) * 32: PeerId(f"m{n}") for n in range(3)}
KEYS = (*MEMBERS, b"x" * 32)  # the last is a stranger's, as ZAP would never let it in
ROUTES_PER_KEY = 6


class Counter:
    """A listener whose pipes are full, or broken, when the bytes say so; checks what is sent."""

    address = "tcp://counter:1"

    def __init__(self) -> None:
        self.arrivals: deque[Arrival] = deque()
        self.mood = Sent.YES
        self.members = dict(MEMBERS)
        self.asked: dict[tuple[bytes, int], Get] = {}  # what a piece must belong to

    def receive(self) -> Arrival | None:
        return self.arrivals.popleft() if self.arrivals else None

    def send(self, route: bytes, header: bytes, payload: memoryview | None = None) -> Sent:
        message = PEER.decode(header)
        if payload is None:
            assert not isinstance(message, Data)
            return self.mood
        assert isinstance(message, Data)
        assert KEYS[route[0]] in self.members  # not one piece more to a key that was revoked
        get = self.asked[(route, message.xid)]
        assert get.offset <= message.offset < get.end <= len(BODY)
        end = min(message.offset + get.piece_bytes, get.end)
        assert bytes(payload) == BODY[message.offset : end]
        return self.mood

    def hang_up(self, key: bytes) -> None: ...

    def pardon(self, key: bytes) -> None: ...

    def close(self) -> None: ...


class Ears:
    """Where the node would be told."""

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def put(self, event: Event) -> None:
        self.heard.append(event)


@cache
def _served(round_no: int) -> SnapshotRef:
    """A snapshot in memory that has a path; made once."""
    handle = os.memfd_create("served")
    os.write(handle, BODY)
    encoded = encode_document(manifest(round_no))
    return SnapshotRef(encoded, digest(encoded), f"/proc/self/fd/{handle}", 0)


class Counting:
    """A desk behind the counter, and what the other peers do there."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._now_s = 0.0
        self._round_no = 0
        self._counter = Counter()
        self._said: list[bytes] = []
        self._desk = Desk(
            self._counter,
            names=lambda: self._counter.members,
            events=Ears(),  # type: ignore[arg-type] # an inbox without a thread behind it
        )
        shelf = Shelf(run=RUN, name=A, schema=SCHEMA, sign_secret=SECRET)
        self._shelf = shelf
        self._desk.open(shelf)

    def run(self) -> None:
        while not self._feed.is_over:
            self._step()
            self._desk.turn(self._now_s)
            self._check()
        self._counter.mood = Sent.YES
        for _ in range(60):  # whatever happened, it gets rid of all that nobody reads
            if not self._desk._serving._transfers:
                break
            self._now_s += 11.0
            self._desk.turn(self._now_s)
        assert not self._desk._serving._transfers

    def _step(self) -> None:
        feed = self._feed
        match feed.byte() % 12:
            case 0:
                self._says(feed.block(), payload=feed.pick((None, None, None, b"x")))
            case 1 | 2 | 3:
                self._says(PEER.encode(self._transfer()))
            case 4 | 5 | 6:
                self._says(PEER.encode(self._word()))
            case 7:  # again, from wherever
                if self._said:
                    self._says(feed.pick(self._said))
            case 8:
                self._publish()
            case 9:
                self._now_s += feed.pick((0.01, 1.0, 2.0, 10.0, 11.0))
            case 10:
                self._counter.mood = feed.pick((Sent.YES, Sent.FULL, Sent.GONE))
            case _:
                self._revoke_or_admit()

    def _says(self, header: bytes, payload: bytes | None = None) -> None:
        who = self._feed.byte()
        key = who % len(KEYS)
        route = bytes([key, who // len(KEYS) % ROUTES_PER_KEY])
        self._said = [*self._said[-15:], header]
        self._counter.arrivals.append(Arrival(route, KEYS[key], header, payload))
        try:
            message = PEER.decode(header)
        except RemoteProtocolError:
            return
        if isinstance(message, Get):
            self._counter.asked[(route, message.xid)] = message

    def _transfer(self) -> Get | Credit | Cancel:
        feed = self._feed
        xid = feed.byte() % 8
        match feed.byte() % 4:
            case 0 | 1:
                name = feed.pick((_served(1).digest, _served(2).digest, bytes(32)))
                offset = feed.pick((0, 0, len(BODY) - 1, feed.number(2), *HUGE))
                end = feed.pick((len(BODY), len(BODY) + 1, feed.number(2), *HUGE))
                piece_bytes = feed.pick((MIN_PIECE_BYTES, MIN_PIECE_BYTES + 1, MAX_PIECE_BYTES))
                return Get(xid, name, offset, end, piece_bytes, feed.pick((0, 1, 4, 2**31)))
            case 2:
                return Credit(xid, feed.pick((1, 2, 2**31)))
            case _:
                return Cancel(xid)

    def _word(self) -> PeerMessage:
        feed = self._feed
        run = feed.pick((RUN, RUN, RUN, b"o" * 16))
        match feed.byte() % 6:
            case 0:
                return Hello(feed.byte() % 3, run, feed.pick(("m0", "m1", "a")), SCHEMA)
            case 1 | 2:
                part = feed.pick(tuple(Part))
                return Ask(run, part, feed.byte() % 4, feed.pick((0, 1, 2**31)))
            case 3:
                return Done(run)
            case 4:
                return Seen(run, Epoch(feed.byte(), 0))
            case _:
                return Bye("tired")

    def _publish(self) -> None:
        self._round_no += 1
        if self._round_no < 5:
            self._desk.publish(_served(self._round_no), self._round_no)
            self._desk.status(Status(self._round_no, "train"))

    def _revoke_or_admit(self) -> None:
        key = self._feed.pick(tuple(MEMBERS))
        name = self._counter.members.pop(key, None)
        if name is None:
            self._counter.members[key] = MEMBERS[key]
        else:
            self._desk.forget({key: name})

    def _check(self) -> None:
        serving = self._desk._serving
        check_serving(serving)
        assert {t.key for t in serving._transfers.values()} <= self._counter.members.keys()
        shelf = self._shelf
        assert len(shelf._routes) <= ROUTES_PER_PEER * len(MEMBERS)
        assert shelf._questions.keys() <= shelf._routes.keys()
        assert shelf._shown_at_s.keys() <= shelf._routes.keys()
        assert len(self._desk._muted) <= len(MEMBERS)
        assert set(self._desk._bodies) <= {_served(n).digest for n in range(1, 5)}


def desk(data: bytes) -> None:
    """A peer's port, and four keys that say anything to it."""
    Counting(Feed(data)).run()

"""Both sides of a transfer over a network that loses, doubles, reorders and breaks.

Virtual time, one seed for each network. Whatever it does, the pull ends; it ends complete only with
the right bytes; and once the network behaves it ends complete.
"""

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.codec import PEER
from protocol.wire.digest import Hasher, digest
from protocol.wire.link import Send
from protocol.wire.messages import (
    Cancel,
    Credit,
    Data,
    Err,
    Get,
    Part,
    SnapshotManifest,
    TensorSpec,
)
from protocol.wire.pulling import Complete, Effect, Failed, Pull, Verify
from protocol.wire.serving import Serving

KEY = b"k" * 32
NAME = b"n" * 32
END_S = 3600.0


@dataclass(frozen=True)
class Weather:
    """Chances for each message, while the sun does not shine."""

    loss: float
    doubled: float
    reordered: float
    breaks: float  # of the connection
    full: float  # route
    until_s: float  # fair afterwards


class World:
    def __init__(self, sizes: list[int], weather: Weather, seed: int, held: int = 0) -> None:
        """Bits of `held`: which tensors the taking side has already."""
        self.now_s = 0.0
        self.ends: list[Effect] = []
        self._weather = weather
        self._dice = Random(seed)
        self._order = count()
        self._agenda: list[tuple[float, int, str, Any]] = []
        self._route = 0  # of the present connection; 0 while there is none
        self._routes = count(1)
        manifest = self._manifest(sizes)
        self.received = bytearray(len(self.body))
        self.serving = Serving()
        self.serving.publish(NAME, len(self.body))
        have = {number for number in range(len(sizes)) if held >> number & 1}
        self.pull = Pull(manifest, digest=NAME, xids=count(1), now_s=0.0, held=have)
        for number in have:
            place = self.pull.layout.places[number]
            self.received[place.start : place.end] = self.body[place.start : place.end]
        self._hasher = Hasher()
        self.served_bytes = 0

    def _manifest(self, sizes: list[int]) -> SnapshotManifest:
        specs, body = [], b""
        for number, size in enumerate(sizes):
            content = self._dice.randbytes(size)
            specs.append(TensorSpec("params", f"t{number}", "uint8", (size,), digest(content)))
            body += bytes(-len(body) % 64) + content
        self.body = body
        return SnapshotManifest(
            run=bytes(16), sender="a", part=Part.RESULT, round_no=1,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1,
            nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(), tensors=tuple(specs),
        )  # fmt: skip

    def run(self) -> None:
        self._carry_out(self.pull.begin())
        self._later(0.1, "connect", None)
        while not self.pull.is_done:
            due_s = self.pull.due_s
            next_s = self._agenda[0][0] if self._agenda else END_S
            if due_s is not None and due_s <= next_s:
                self.now_s = max(self.now_s, due_s)
                self._carry_out(self.pull.wake(self.now_s))
            else:
                assert self._agenda, "nothing is left to happen and the pull is not done"
                self.now_s, _, what, content = heappop(self._agenda)
                getattr(self, f"_{what}")(content)
            self._serve()
            assert self.now_s < END_S

    def _later(self, delay_s: float, what: str, content: Any) -> None:
        heappush(self._agenda, (self.now_s + delay_s, next(self._order), what, content))

    def _happens(self, chance: float) -> bool:
        return self.now_s < self._weather.until_s and self._dice.random() < chance

    def _carry(self, what: str, content: Any) -> None:
        """Put a message on the way, as the weather allows."""
        if self._happens(self._weather.breaks):
            self._later(0.0, "break", self._route)
        if self._happens(self._weather.loss):
            return
        for _ in range(1 + self._happens(self._weather.doubled)):
            self._later(0.02 + 0.5 * self._happens(self._weather.reordered), what, content)

    def _connect(self, _: None) -> None:
        self._route = next(self._routes)
        self._carry_out(self.pull.connected(self.now_s))

    def _break(self, route: int) -> None:
        if route == self._route != 0:
            self._route = 0
            self.pull.disconnected()
            self._later(0.3, "connect", None)

    def _request(self, content: tuple[int, bytes]) -> None:
        route, header = content
        message = PEER.decode(header)
        assert isinstance(message, Get | Credit | Cancel)
        err = self.serving.receive(route.to_bytes(4), KEY, message, self.now_s)
        if err is not None:
            self._carry("answer", (route, PEER.encode(err), b""))

    def _serve(self) -> None:
        self.serving.wake(self.now_s)
        while (piece := self.serving.next_piece(self.now_s)) is not None:
            route = int.from_bytes(piece.route)
            if route != self._route:
                self.serving.gone(piece.route)
            elif self._happens(self._weather.full):
                self.serving.full(piece, self.now_s)
                self._later(0.03, "nothing", None)
            else:
                self.serving.sent(piece, self.now_s)
                self.served_bytes += piece.num_bytes
                payload = self.body[piece.offset : piece.offset + piece.num_bytes]
                header = PEER.encode(Data(piece.xid, piece.offset))
                self._carry("answer", (route, header, payload))

    def _nothing(self, _: None) -> None:
        pass

    def _answer(self, content: tuple[int, bytes, bytes]) -> None:
        route, header, payload = content
        if route != self._route:
            return
        message = PEER.decode(header)
        assert isinstance(message, Data | Err)
        place = self.pull.place(message) if isinstance(message, Data) else None
        if place is not None:
            assert place.end - place.start == len(payload)
            self.received[place.start : place.end] = payload
        size = 0 if place is None else len(payload)
        self._carry_out(self.pull.receive(message, size, self.now_s))

    def _verified(self, verdict: tuple[int, bool]) -> None:
        tensor, is_good = verdict
        self._carry_out(self.pull.verified(tensor=tensor, is_good=is_good))

    def _hash(self, part: Verify) -> None:
        self._hasher.update(bytes(self.received[part.place.start : part.place.end]))
        if part.is_last:
            verdict = part.tensor, self._hasher.digest() == part.digest
            self._hasher = Hasher()
            self._later(self._dice.random(), "verified", verdict)

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Send(message):
                    self._carry("request", (self._route, PEER.encode(message)))
                case Verify():
                    self._hash(effect)
                case Complete() | Failed():
                    self.ends.append(effect)


SIZES = st.lists(
    st.sampled_from([0, 1, 63, 64, 65, 16_384, 200_000, 1_048_576, 1_500_001]),
    min_size=1, max_size=5,
)  # fmt: skip
CHANCE = st.floats(0.0, 0.3)
SEED = st.integers(0, 2**32)
HELD = st.sampled_from([0, 1, 2, 5, 31])  # none, one at either end, some, all


def weather(until_s: float, **chances: Any) -> Weather:
    calm = Weather(0.0, 0.0, 0.0, 0.0, 0.0, until_s)
    return replace(calm, **chances)


@given(sizes=SIZES, seed=SEED, held=HELD)
def test_on_a_fair_day_what_is_missing_arrives_at_once(
    sizes: list[int], seed: int, held: int
) -> None:
    world = World(sizes, weather(0.0), seed, held)
    world.run()
    assert world.ends == [Complete()]
    assert world.received == world.body
    spans = sum(span.end - span.start for span in world.pull.spans)
    assert world.served_bytes == world.pull.num_bytes == spans
    assert world.now_s < 3.0


@given(sizes=SIZES, chances=st.tuples(*[CHANCE] * 5), seed=SEED, held=HELD)
def test_in_any_weather_a_pull_ends_and_is_right_if_it_is_complete(
    sizes: list[int], chances: tuple[float, float, float, float, float], seed: int, held: int
) -> None:
    world = World(sizes, Weather(*chances, END_S), seed, held)
    world.run()
    assert len(world.ends) == 1
    if world.ends == [Complete()]:
        assert world.received == world.body


@given(sizes=SIZES, doubled=CHANCE, full=CHANCE, seed=SEED)
def test_doubled_pieces_and_full_routes_never_fail_a_pull(
    sizes: list[int], doubled: float, full: float, seed: int
) -> None:
    world = World(sizes, weather(END_S, doubled=doubled, full=full), seed)
    world.run()
    assert world.ends == [Complete()]
    assert world.received == world.body


@given(sizes=SIZES, loss=CHANCE, breaks=CHANCE, seed=SEED)
def test_a_storm_of_ten_seconds_is_survived(
    sizes: list[int], loss: float, breaks: float, seed: int
) -> None:
    world = World(sizes, weather(1.0, loss=loss, breaks=breaks), seed)
    world.run()
    assert world.ends == [Complete()]
    assert world.received == world.body

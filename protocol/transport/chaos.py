"""Faults on any transport: what a caller says and hears is cut, held up, lost or changed.

Every node of a run carries the same faults. A stream over TCP never loses a message:

* a cut closes the connection at whoever has called, and it is called again when the cut is over;
* a message that is lost takes its connection with it, and everything that was on the way; whoever
  has called calls again at once;
* delay, jitter and bandwidth hold messages up at their sender, in order;
* a message that is changed has one bit flipped, after decryption: what CURVE would have caught on
  the way arrives as if the sender had sent it.

Which fault is in force at which instant is a `Weather`'s to say; chance is seeded.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import count
from random import Random
from typing import TypeAlias

from protocol.clock import Clock
from protocol.transport.base import (
    Admits,
    Arrival,
    Caller,
    CallerEvent,
    Listener,
    Offended,
    Pollable,
    Poller,
    Sent,
    Transport,
    Wake,
)
from protocol.transport.ways import CALM, Line, Way, Weather, flipped

__all__ = ["Chaos"]

TICK_S = 0.1  # how late a change of the weather may be felt
MAX_HELD = 64  # messages on their way out, as a socket's own queue
MAX_ROUTES = 4096  # that a listener knows the key of
RETRY_S = 0.01  # what is due finds no room in the socket

_Into: TypeAlias = Callable[[bytes], memoryview | None]
_Answer: TypeAlias = bytes | tuple[bytes, int] | CallerEvent


class Chaos:
    """A transport in the weather."""

    def __init__(self, inner: Transport, weather: Weather, *, clock: Clock, seed: bytes) -> None:
        """Wrap a transport, which is closed with this one.

        Args:
            inner: carries what is left.
            weather: asked from every thread that calls.
            clock: monotonic.
            seed: all chance derives from it, the callee's key and how many there were before.
        """
        self._inner, self._weather, self._clock, self._seed = inner, weather, clock, seed
        self._numbers = count()

    def listen(
        self, bind: str, *, admits: Admits, offended: Offended = lambda _key, _reason: None
    ) -> Listener:
        inner = self._inner.listen(bind, admits=admits, offended=offended)
        return _ChaosListener(inner, self._weather, self._clock, self._chance(b"listener"))

    def call(self, address: str, *, server_key: bytes) -> Caller:
        return _ChaosCaller(
            lambda: self._inner.call(address, server_key=server_key),
            lambda now_s: self._weather.ways(server_key, now_s),
            self._clock,
            self._chance(server_key),
        )

    def _chance(self, whom: bytes) -> Random:
        number = next(self._numbers).to_bytes(8)
        digest = blake2b(self._seed + whom + number, digest_size=8).digest()
        return Random(int.from_bytes(digest))

    def poller(self) -> Poller:
        return _ChaosPoller(self._inner.poller(), self._clock)

    def wake(self) -> Wake:
        return self._inner.wake()

    def close(self) -> None:
        self._inner.close()


class _ChaosCaller:
    def __init__(
        self,
        connect: Callable[[], Caller],
        ways: Callable[[float], tuple[Way, Way]],
        clock: Clock,
        chance: Random,
    ) -> None:
        self._connect, self._ways, self._clock, self._chance = connect, ways, clock, chance
        self.inner: Caller | None = connect()
        self.pollers: set[_ChaosPoller] = set()
        self._is_up = False  # as whoever holds this has been told
        self._has_fallen = False  # and is to be told that
        self._out: deque[tuple[float, bytes]] = deque()
        self._line = Line(chance)

    def send(self, header: bytes) -> bool:
        now_s = self._clock.now_s()
        self.turn(now_s)
        if self.inner is None:
            return False
        way, _ = self._ways(now_s)
        if way == CALM and not self._out:
            return self.inner.send(header)
        if not self._is_up or len(self._out) >= MAX_HELD:
            return False
        if self._draw(way.loss):
            self._break()
            return True  # it has left; it will not arrive
        if self._draw(way.corrupt):
            header = flipped(header, self._chance)
        self._out.append((self._line.due_s(way, len(header), now_s), header))
        self.turn(now_s)
        return True

    def receive(self, into: _Into | None = None) -> _Answer | None:
        now_s = self._clock.now_s()
        self.turn(now_s)
        if self._has_fallen:
            self._has_fallen = False
            return CallerEvent.DISCONNECTED
        if self.inner is None:
            return None
        _, way = self._ways(now_s)
        if self._draw(way.loss):
            return self._lost(self.inner.receive())
        placed = _Placed(into)
        answer = self._noted(self.inner.receive(placed if into is not None else None))
        if answer is None or isinstance(answer, CallerEvent) or not self._draw(way.corrupt):
            return answer
        return placed.changed(answer, self._chance)

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()
        for poller in set(self.pollers):
            poller.discard(self)

    # -- what a poller needs ----------------------------------------------------------------------

    def turn(self, now_s: float) -> None:
        """Feel the weather, and let go what has been held up long enough."""
        there, back = self._ways(now_s)
        is_cut = there.is_cut or back.is_cut
        if is_cut and self.inner is not None:
            self._break(again=False)
        elif not is_cut and self.inner is None:
            self._call_again()
        while self.inner is not None and self._out and self._out[0][0] <= now_s:
            self.inner.send(self._out.popleft()[1])

    @property
    def next_s(self) -> float:
        """When something is to leave."""
        return self._out[0][0] if self._out else math.inf

    @property
    def has_news(self) -> bool:
        return self._has_fallen

    # -- the connection ---------------------------------------------------------------------------

    def _lost(self, answer: _Answer | None) -> _Answer | None:
        """Of what would have been heard now: a message is lost, and its connection with it."""
        if answer is None or isinstance(answer, CallerEvent):
            return self._noted(answer)
        self._break()
        self._has_fallen = False
        return CallerEvent.DISCONNECTED

    def _noted(self, answer: _Answer | None) -> _Answer | None:
        if isinstance(answer, CallerEvent):
            self._is_up = answer is CallerEvent.CONNECTED
        return answer

    def _break(self, *, again: bool = True) -> None:
        """Lose the connection, and everything that is on its way."""
        if self.inner is not None:
            for poller in self.pollers:
                poller.lose(self.inner)
            self.inner.close()
            self.inner = None
        self._out.clear()
        self._line = Line(self._chance)
        self._has_fallen, self._is_up = self._is_up, False
        if again:
            self._call_again()

    def _call_again(self) -> None:
        self.inner = self._connect()
        for poller in self.pollers:
            poller.find(self, self.inner)

    def _draw(self, rate: float) -> bool:
        return rate > 0.0 and self._chance.random() < rate


class _Placed:
    """Notes where a payload was put, so that it can be changed there."""

    def __init__(self, into: _Into | None) -> None:
        self._into = into
        self._room: memoryview | None = None

    def __call__(self, header: bytes) -> memoryview | None:
        self._room = self._into(header) if self._into is not None else None
        return self._room

    def changed(
        self, answer: bytes | tuple[bytes, int], chance: Random
    ) -> bytes | tuple[bytes, int]:
        """The same message with one bit flipped, in its payload or in its header."""
        if isinstance(answer, bytes):
            return flipped(answer, chance)
        header, size = answer
        if self._room is not None and size > 0:
            self._room[chance.randrange(size)] ^= 1 << chance.randrange(8)
            return answer
        return flipped(header, chance), size


class _ChaosListener:
    """Holds up what it answers; who asks feels the rest of the weather."""

    def __init__(self, inner: Listener, weather: Weather, clock: Clock, chance: Random) -> None:
        self.inner = inner
        self._weather, self._clock, self._chance = weather, clock, chance
        self._keys: dict[bytes, bytes] = {}  # of each route, the newest last
        self._held: dict[bytes, deque[tuple[float, bytes, memoryview | None]]] = {}
        self._lines: dict[bytes, Line] = {}

    @property
    def address(self) -> str:
        return self.inner.address

    def receive(self) -> Arrival | None:
        self.turn(self._clock.now_s())
        arrival = self.inner.receive()
        if arrival is not None and arrival.route not in self._keys:
            if len(self._keys) >= MAX_ROUTES:
                self._forget(next(iter(self._keys)))
            self._keys[arrival.route] = arrival.key
        return arrival

    def send(self, route: bytes, header: bytes, payload: memoryview | None = None) -> Sent:
        now_s = self._clock.now_s()
        self.turn(now_s)
        held = self._held.get(route)
        key = self._keys.get(route)
        way = CALM if key is None else self._weather.ways(key, now_s)[0]
        if not way.holds_up and not held:
            return self.inner.send(route, header, payload)
        if held is not None and len(held) >= MAX_HELD:
            return Sent.FULL
        line = self._lines.setdefault(route, Line(self._chance))
        due_s = line.due_s(way, len(header) + (len(payload) if payload else 0), now_s)
        self._held.setdefault(route, deque()).append((due_s, header, payload))
        return Sent.YES

    def hang_up(self, key: bytes) -> None:
        for route in [route for route, of in self._keys.items() if of == key]:
            self._forget(route)
        self.inner.hang_up(key)

    def pardon(self, key: bytes) -> None:
        self.inner.pardon(key)

    def close(self) -> None:
        self._held.clear()
        self.inner.close()

    def turn(self, now_s: float) -> None:
        """Let go what has been held up long enough."""
        for route, held in list(self._held.items()):
            while held and held[0][0] <= now_s:
                _, header, payload = held[0]
                sent = self.inner.send(route, header, payload)
                if sent is Sent.FULL:
                    held[0] = (now_s + RETRY_S, header, payload)
                    break
                held.popleft()
                if sent is Sent.GONE:
                    held.clear()
            if not held:
                del self._held[route]

    @property
    def next_s(self) -> float:
        """When something is to leave."""
        return min((held[0][0] for held in self._held.values() if held), default=math.inf)

    @property
    def has_news(self) -> bool:
        return False

    def _forget(self, route: bytes) -> None:
        del self._keys[route]
        self._held.pop(route, None)
        self._lines.pop(route, None)


class _ChaosPoller:
    """Waits also for what is held up, and looks at the weather now and then."""

    def __init__(self, inner: Poller, clock: Clock) -> None:
        self._inner, self._clock = inner, clock
        self._ours: dict[int, _ChaosCaller | _ChaosListener] = {}  # by identity
        self._of: dict[int, _ChaosCaller | _ChaosListener] = {}  # by that of what is inside

    def add(self, item: Pollable) -> None:
        if not isinstance(item, _ChaosCaller | _ChaosListener):
            self._inner.add(item)
            return
        self._ours[id(item)] = item
        if isinstance(item, _ChaosCaller):
            item.pollers.add(self)
        if item.inner is not None:
            self.find(item, item.inner)

    def discard(self, item: Pollable) -> None:
        if not isinstance(item, _ChaosCaller | _ChaosListener):
            self._inner.discard(item)
            return
        self._ours.pop(id(item), None)
        if isinstance(item, _ChaosCaller):
            item.pollers.discard(self)
        if item.inner is not None:
            self.lose(item.inner)

    def find(self, item: _ChaosCaller | _ChaosListener, inner: Caller | Listener) -> None:
        self._of[id(inner)] = item
        self._inner.add(inner)

    def lose(self, inner: Caller | Listener) -> None:
        self._of.pop(id(inner), None)
        self._inner.discard(inner)

    def poll(self, timeout_s: float | None) -> Sequence[Pollable]:
        until_s = math.inf if timeout_s is None else self._clock.now_s() + timeout_s
        while True:
            now_s = self._clock.now_s()
            for item in list(self._ours.values()):
                item.turn(now_s)
            news = [item for item in self._ours.values() if item.has_news]
            next_s = min([until_s, *(item.next_s for item in self._ours.values())])
            wait_s = max(0.0, next_s - now_s)
            if self._ours:
                wait_s = min(wait_s, TICK_S)
            found: list[Pollable] = [*news]
            for inside in self._inner.poll(0.0 if news else None if wait_s == math.inf else wait_s):
                known = self._of.get(id(inside))
                if known is None:
                    found.append(inside)
                elif known not in news:
                    found.append(known)
            if found or self._clock.now_s() >= until_s:
                return found

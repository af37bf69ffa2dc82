"""Faults on any transport: what a caller says and hears is cut, held up, lost or changed.

A fault acts on the connections that a node calls, in both directions; what others call is theirs
to disturb, so every node of a run carries the same faults. A stream over TCP never loses a message:

* a cut closes the connection, and it is called again when the cut is over;
* a message that is lost takes its connection with it, and everything that was on the way; the
  connection is called again at once;
* delay, jitter and bandwidth hold messages up, in order;
* a message that is changed has one bit flipped, after decryption: what CURVE would have caught on
  the way arrives as if the sender had sent it.

Which fault is in force at which instant is a `Weather`'s to say; chance is seeded.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from random import Random
from typing import Protocol, TypeAlias

from protocol.clock import Clock
from protocol.transport.base import (
    Admits,
    Caller,
    CallerEvent,
    Listener,
    Offended,
    Pollable,
    Poller,
    Transport,
    Wake,
)

__all__ = ["CALM", "Chaos", "Way", "Weather"]

TICK_S = 0.1  # how late a change of the weather may be felt
MAX_HELD = 1000  # messages on their way out, as a socket's own queue

_Heard: TypeAlias = bytes | tuple[bytes, int] | CallerEvent


@dataclass(frozen=True, slots=True)
class Way:
    """What happens to messages in one direction."""

    is_cut: bool = False
    loss: float = 0.0  # share of the messages, in [0, 1]
    corrupt: float = 0.0  # share of the messages, in [0, 1]
    delay_s: float = 0.0  # of each message
    jitter_s: float = 0.0  # at most so much more, evenly drawn
    mbit: float = math.inf  # megabits a second


CALM = Way()


class Weather(Protocol):
    def ways(self, key: bytes, now_s: float) -> tuple[Way, Way]:
        """What is in force between this node and the one of that CURVE key: there, and back."""


class Chaos:
    """A transport whose callers stand in the weather."""

    def __init__(self, inner: Transport, weather: Weather, *, clock: Clock, seed: bytes) -> None:
        """Wrap a transport, which is closed with this one.

        Args:
            inner: carries what is left.
            weather: asked from every thread that calls.
            clock: monotonic.
            seed: all chance derives from it, the callee's key and the number of the call.
        """
        self._inner, self._weather, self._clock, self._seed = inner, weather, clock, seed
        self._numbers = count()

    def listen(
        self, bind: str, *, admits: Admits, offended: Offended = lambda _key, _reason: None
    ) -> Listener:
        return self._inner.listen(bind, admits=admits, offended=offended)

    def call(self, address: str, *, server_key: bytes) -> Caller:
        number = next(self._numbers).to_bytes(8)
        digest = blake2b(self._seed + server_key + number, digest_size=8).digest()
        return _ChaosCaller(
            lambda: self._inner.call(address, server_key=server_key),
            lambda now_s: self._weather.ways(server_key, now_s),
            self._clock,
            Random(int.from_bytes(digest)),
        )

    def poller(self) -> Poller:
        return _ChaosPoller(self._inner.poller(), self._clock)

    def wake(self) -> Wake:
        return self._inner.wake()

    def close(self) -> None:
        self._inner.close()


class _Line:
    """One direction: each message's own time on its way, in order."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._free_s = -math.inf  # when the last byte so far has left
        self._last_s = -math.inf

    def due_s(self, way: Way, num_bytes: int, now_s: float) -> float:
        """When a message of that size that leaves now will be there."""
        self._free_s = max(self._free_s, now_s) + num_bytes * 8 / (way.mbit * 1e6)
        drawn_s = self._chance.uniform(0.0, way.jitter_s) if way.jitter_s else 0.0
        self._last_s = max(self._last_s, self._free_s + way.delay_s + drawn_s)
        return self._last_s


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
        self._is_up = False  # as whoever holds this has been told, or will be
        self._out: deque[tuple[float, bytes]] = deque()
        self._in: deque[tuple[float, _Heard]] = deque()
        self._there, self._back = _Line(chance), _Line(chance)

    def send(self, header: bytes) -> bool:
        now_s = self._clock.now_s()
        self.turn(now_s)
        if self.inner is None:
            return False
        there, _ = self._ways(now_s)
        if there == CALM and not self._out:
            return self.inner.send(header)
        if not self._is_up or len(self._out) >= MAX_HELD:
            return False
        if self._draw(there.loss):
            self._break()
            return True  # it has left; it will not arrive
        if self._draw(there.corrupt):
            header = _flipped(header, self._chance)
        self._out.append((self._there.due_s(there, len(header), now_s), header))
        self.turn(now_s)
        return True

    def receive(self, into: Callable[[bytes], memoryview | None] | None = None) -> _Heard | None:
        now_s = self._clock.now_s()
        self.turn(now_s)
        if self.inner is not None:
            self._listen(self.inner, into, now_s)
        if self._in and self._in[0][0] <= now_s:
            return self._in.popleft()[1]
        return None

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
        """When something will be here, or leave."""
        return min((queue[0][0] for queue in (self._in, self._out) if queue), default=math.inf)

    @property
    def has_arrived(self) -> bool:
        return bool(self._in) and self._in[0][0] <= self._clock.now_s()

    # -- the connection ---------------------------------------------------------------------------

    def _listen(
        self, inner: Caller, into: Callable[[bytes], memoryview | None] | None, now_s: float
    ) -> None:
        """Take in what is there; payloads go to their places at once, and are told when due."""
        while True:
            _, back = self._ways(now_s)
            placed: list[memoryview] = []
            is_lost = self._draw(back.loss)
            heard = inner.receive(None if is_lost or into is None else _noting(into, placed))
            match heard:
                case None:
                    return
                case CallerEvent():
                    self._is_up = heard is CallerEvent.CONNECTED
                    self._in.append((self._back.due_s(CALM, 0, now_s), heard))
                    if back == CALM:
                        return
                    continue
                case _ if is_lost:
                    self._break()
                    return
                case _:
                    self._in.append(self._arrived(heard, placed, back, now_s))
            if back == CALM:
                return  # one at a time, as they are asked for

    def _arrived(
        self, heard: bytes | tuple[bytes, int], placed: Sequence[memoryview], way: Way, now_s: float
    ) -> tuple[float, _Heard]:
        header, size = heard if isinstance(heard, tuple) else (heard, 0)
        if self._draw(way.corrupt):
            if size > 0 and placed and self._chance.random() < size / (size + len(header)):
                place = self._chance.randrange(size)
                placed[-1][place] ^= 1 << self._chance.randrange(8)
            else:
                header = _flipped(header, self._chance)
                heard = (header, size) if isinstance(heard, tuple) else header
        return self._back.due_s(way, len(header) + max(size, 0), now_s), heard

    def _break(self, *, again: bool = True) -> None:
        """Lose the connection, and everything that is on its way."""
        if self.inner is not None:
            for poller in self.pollers:
                poller.lose(self.inner)
            self.inner.close()
            self.inner = None
        self._out.clear()
        self._in.clear()
        self._there, self._back = _Line(self._chance), _Line(self._chance)
        if self._is_up:
            self._in.append((-math.inf, CallerEvent.DISCONNECTED))
        self._is_up = False
        if again:
            self._call_again()

    def _call_again(self) -> None:
        self.inner = self._connect()
        for poller in self.pollers:
            poller.find(self, self.inner)

    def _draw(self, rate: float) -> bool:
        return rate > 0.0 and self._chance.random() < rate


def _noting(
    into: Callable[[bytes], memoryview | None], placed: list[memoryview]
) -> Callable[[bytes], memoryview | None]:
    def place(header: bytes) -> memoryview | None:
        room = into(header)
        if room is not None:
            placed.append(room)
        return room

    return place


def _flipped(frame: bytes, chance: Random) -> bytes:
    """One bit of it is another."""
    if not frame:
        return frame
    changed = bytearray(frame)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


class _ChaosPoller:
    """Waits also for what is held up, and looks at the weather now and then."""

    def __init__(self, inner: Poller, clock: Clock) -> None:
        self._inner, self._clock = inner, clock
        self._callers: dict[int, _ChaosCaller] = {}  # by identity
        self._of: dict[int, _ChaosCaller] = {}  # by identity of what they call with

    def add(self, item: Pollable) -> None:
        if not isinstance(item, _ChaosCaller):
            self._inner.add(item)
            return
        self._callers[id(item)] = item
        item.pollers.add(self)
        if item.inner is not None:
            self.find(item, item.inner)

    def discard(self, item: Pollable) -> None:
        if not isinstance(item, _ChaosCaller):
            self._inner.discard(item)
            return
        self._callers.pop(id(item), None)
        item.pollers.discard(self)
        if item.inner is not None:
            self.lose(item.inner)

    def find(self, caller: _ChaosCaller, inner: Caller) -> None:
        self._of[id(inner)] = caller
        self._inner.add(inner)

    def lose(self, inner: Caller) -> None:
        self._of.pop(id(inner), None)
        self._inner.discard(inner)

    def poll(self, timeout_s: float | None) -> Sequence[Pollable]:
        until_s = math.inf if timeout_s is None else self._clock.now_s() + timeout_s
        while True:
            now_s = self._clock.now_s()
            for caller in list(self._callers.values()):
                caller.turn(now_s)
            here = [caller for caller in self._callers.values() if caller.has_arrived]
            next_s = min([until_s, *(c.next_s for c in self._callers.values())])
            wait_s = max(0.0, next_s - now_s)
            if self._callers:
                wait_s = min(wait_s, TICK_S)
            ready = self._inner.poll(0.0 if here else None if wait_s == math.inf else wait_s)
            found: list[Pollable] = [*here]
            for item in ready:
                known = self._of.get(id(item), item)
                if known not in found:
                    found.append(known)
            if found or self._clock.now_s() >= until_s:
                return found

"""Listeners and callers in one process: the contract of base.py without a network.

For tests and tools: nothing is lost, nothing is late, keys are taken at their word. A caller tries
to connect whenever it is polled, so that no thread of its own is needed.
"""

import select
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from threading import RLock
from typing import TypeAlias

from protocol.clock import MonotonicClock
from protocol.errors import AddressError, TransportClosedError
from protocol.transport.base import Admits, Arrival, CallerEvent, Offended, Pollable, Sent
from protocol.transport.wake import SocketWake
from protocol.wire.messages import MAX_REQUEST_BYTES

__all__ = ["MemoryNetwork", "MemoryTransport"]

QUEUE_MESSAGES = 64  # from a listener to one caller; more is FULL
RETRY_S = 0.02  # a poll with an unconnected caller looks again so often

_Item: TypeAlias = "CallerEvent | tuple[bytes, memoryview | None]"


class MemoryNetwork:
    """What the transports of one test have in common: who listens where."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.listeners: dict[str, _Listener] = {}
        self.ports = count(40000)
        self.routes = count(1)


class MemoryTransport:
    """One node's end of the network."""

    def __init__(self, network: MemoryNetwork, *, key: bytes) -> None:
        """Join the network.

        Args:
            network: shared by all that may reach one another.
            key: 32 bytes that this node is known by, as caller and as listener.
        """
        self._network = network
        self._key = key
        self._made: list[_Listener | _Caller | SocketWake] = []
        self._is_closed = False

    def listen(
        self, bind: str, *, admits: Admits, offended: Offended = lambda _key, _reason: None
    ) -> "_Listener":
        host, _, port = bind.rpartition(":")
        with self._network.lock:
            address = f"{host}:{port if port != '0' else next(self._network.ports)}"
            if not host.startswith("tcp://") or not port.isdecimal():
                raise AddressError(f"cannot bind {bind}", hint="use tcp://HOST:PORT")
            if address in self._network.listeners:
                raise AddressError(f"{address} is in use", hint="choose another port, or port 0")
            listener = _Listener(
                self._network, address, key=self._key, admits=admits, offended=offended
            )
            self._network.listeners[address] = listener
        self._made.append(listener)
        return listener

    def call(self, address: str, *, server_key: bytes) -> "_Caller":
        caller = _Caller(self._network, address, key=self._key, server_key=server_key)
        self._made.append(caller)
        return caller

    def poller(self) -> "_Poller":
        return _Poller(lambda: self._is_closed)

    def wake(self) -> SocketWake:
        wake = SocketWake()
        self._made.append(wake)
        return wake

    def close(self) -> None:
        self._is_closed = True
        for item in self._made:
            item.close()


class _Listener:
    def __init__(
        self,
        network: MemoryNetwork,
        address: str,
        *,
        key: bytes,
        admits: Admits,
        offended: Offended,
    ) -> None:
        self.address = address
        self.key = key
        self.signal = SocketWake()
        self._network = network
        self._admits = admits
        self._offended = offended
        self._banned: set[bytes] = set()
        self._inbox: deque[Arrival] = deque()
        self._callers: dict[bytes, _Caller] = {}

    def receive(self) -> Arrival | None:
        with self._network.lock:
            if self._inbox:
                return self._inbox.popleft()
            self.signal.clear()
            return None

    def send(self, route: bytes, header: bytes, payload: memoryview | None = None) -> Sent:
        with self._network.lock:
            caller = self._callers.get(route)
            if caller is None:
                return Sent.GONE
            return Sent.YES if caller.deliver(header, payload) else Sent.FULL

    def hang_up(self, key: bytes) -> None:
        with self._network.lock:
            for route in [r for r, caller in self._callers.items() if caller.key == key]:
                self.cut(route)

    def ban(self, key: bytes, reason: str) -> None:
        """Shut a key out, as the real one does to who fills its memory."""
        with self._network.lock:
            self._banned.add(key)
            self.hang_up(key)
        self._offended(key, reason)

    def pardon(self, key: bytes) -> None:
        with self._network.lock:
            self._banned.discard(key)

    def close(self) -> None:
        with self._network.lock:
            if self._network.listeners.get(self.address) is self:
                del self._network.listeners[self.address]
                for route in tuple(self._callers):
                    self.cut(route)
                self.signal.close()

    def admit(self, caller: "_Caller", key: bytes) -> bytes | None:
        """The new route of a caller, or None if its key may not connect."""
        try:
            if key in self._banned or not self._admits(key):
                return None
        except Exception:  # noqa: BLE001 - the contract: an exception counts as no
            return None
        route = next(self._network.routes).to_bytes(5)
        self._callers[route] = caller
        return route

    def put(self, arrival: Arrival) -> None:
        self._inbox.append(arrival)
        self.signal.set()

    def cut(self, route: bytes) -> None:
        caller = self._callers.pop(route, None)
        if caller is not None:
            caller.lost()


class _Caller:
    def __init__(
        self, network: MemoryNetwork, address: str, *, key: bytes, server_key: bytes
    ) -> None:
        self.signal = SocketWake()
        self._network = network
        self._address = address
        self.key = key
        self._server_key = server_key
        self._inbox: deque[_Item] = deque()
        self._listener: _Listener | None = None
        self._route = b""
        self._was_refused = False
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._listener is not None

    def tend(self) -> None:
        """Connect if that is possible by now."""
        with self._network.lock:
            listener = self._network.listeners.get(self._address)
            if self._is_closed or self._listener is not None or listener is None:
                return
            if listener.key != self._server_key:
                return  # a real handshake fails without a word, and is tried for ever
            route = listener.admit(self, self.key)
            if route is not None:
                self._listener, self._route = listener, route
                self._tell(CallerEvent.CONNECTED)
            elif not self._was_refused:
                self._tell(CallerEvent.REFUSED)
            self._was_refused = route is None

    def send(self, header: bytes) -> bool:
        with self._network.lock:
            if self._listener is None:
                return False
            if len(header) > MAX_REQUEST_BYTES:
                self._listener.cut(self._route)
                return True  # queued and gone, as far as a sender can tell
            self._listener.put(Arrival(self._route, self.key, header, None))
            return True

    def receive(
        self, into: Callable[[bytes], memoryview | None] | None = None
    ) -> bytes | tuple[bytes, int] | CallerEvent | None:
        with self._network.lock:
            if not self._inbox:
                self.signal.clear()
                return None
            item = self._inbox.popleft()
        if isinstance(item, CallerEvent):
            return item
        header, payload = item
        if payload is None:
            return header
        place = into(header) if into is not None else None
        if place is None:
            return header, 0
        if len(place) != len(payload):
            return header, -1
        place[:] = payload
        return header, len(payload)

    def deliver(self, header: bytes, payload: memoryview | None) -> bool:
        if len(self._inbox) >= QUEUE_MESSAGES:
            return False
        self._inbox.append((header, payload))
        self.signal.set()
        return True

    def lost(self) -> None:
        self._listener = None
        self._tell(CallerEvent.DISCONNECTED)

    def close(self) -> None:
        with self._network.lock:
            if self._is_closed:
                return
            if self._listener is not None:
                self._listener.cut(self._route)
            self._is_closed = True
            self.signal.close()

    def _tell(self, event: CallerEvent) -> None:
        self._inbox.append(event)
        self.signal.set()


class _Poller:
    def __init__(self, is_closed: Callable[[], bool]) -> None:
        self._is_closed = is_closed
        self._poll = select.poll()
        self._items: dict[int, Pollable] = {}
        self._callers: list[_Caller] = []
        self._clock = MonotonicClock()

    def add(self, item: Pollable) -> None:
        self._items[_fileno(item)] = item
        self._poll.register(_fileno(item), select.POLLIN)
        if isinstance(item, _Caller):
            self._callers.append(item)

    def discard(self, item: Pollable) -> None:
        fileno = next((number for number, known in self._items.items() if known is item), None)
        if fileno is None:
            return
        del self._items[fileno]
        self._poll.unregister(fileno)
        if isinstance(item, _Caller):
            self._callers.remove(item)

    def poll(self, timeout_s: float | None) -> Sequence[Pollable]:
        until_s = float("inf") if timeout_s is None else self._clock.now_s() + timeout_s
        while True:
            if self._is_closed():
                raise TransportClosedError("the transport was closed")
            for caller in self._callers:
                caller.tend()
            left_s = max(0.0, until_s - self._clock.now_s())
            if not all(caller.is_connected for caller in self._callers):
                left_s = min(left_s, RETRY_S)
            ready = self._poll.poll(None if left_s == float("inf") else left_s * 1000)
            if ready or self._clock.now_s() >= until_s:
                return [self._items[fileno] for fileno, _ in ready]


def _fileno(item: Pollable) -> int:
    if isinstance(item, int):
        return item
    if isinstance(item, _Listener | _Caller):
        return item.signal.fileno()
    if isinstance(item, SocketWake):
        return item.fileno()
    raise TypeError(f"{item!r} is of another transport")

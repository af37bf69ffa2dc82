"""Frames over ZeroMQ with CURVE on every socket. Only this folder imports zmq.

One ROUTER for each listener, one DEALER for each caller, and a poller that also keeps the callers
alive. docs/wire.md has the measurements behind the options.
"""

import math
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from errno import EADDRINUSE
from itertools import count
from typing import Final, TypeAlias

import zmq

from protocol.clock import MonotonicClock
from protocol.errors import AddressError, TransportClosedError
from protocol.transport.base import Admits, Arrival, Offended, Pollable, Sent
from protocol.transport.dealer import Dealer
from protocol.transport.lines import Lines
from protocol.transport.pages import keep_frame_pages
from protocol.transport.security import Curve, Options, Security
from protocol.transport.wake import SocketWake
from protocol.transport.zap import Zap
from protocol.wire.messages import MAX_PIECE_BYTES, MAX_REQUEST_BYTES

__all__ = ["ZeroMq", "raise_descriptor_limit"]

_Socket: TypeAlias = "zmq.Socket[bytes]"

IO_THREADS = 2  # CURVE runs there: one core's worth of encryption for sending, one for receiving
MAX_SOCKETS = 16384  # three for each caller
CURVE_BYTES = 64  # what CURVE and ZMTP add to a frame is 33; rounded up
JUNK_PER_CALL = 64  # malformed messages skipped before others get their turn

_COMMON: Final[Mapping[int, int]] = {
    # Heartbeats notice a dead link while nothing is sent; MAXRT notices one while a frame is half
    # written, when no heartbeat goes out. Without both, one side or the other never learns.
    zmq.HEARTBEAT_IVL: 2000,
    zmq.HEARTBEAT_TIMEOUT: 6000,
    zmq.HEARTBEAT_TTL: 6000,
    zmq.TCP_MAXRT: 8000,
    zmq.LINGER: 200,  # ms for a goodbye to leave; the default would hang the end of a process
}
_LISTENER: Final[Mapping[int, int]] = {
    zmq.MAXMSGSIZE: MAX_REQUEST_BYTES + CURVE_BYTES,  # without it strangers fill the memory
    zmq.SNDHWM: 96,  # of each route: 16 credits for each of a few transfers, and control
    zmq.RCVHWM: 256,
    zmq.ROUTER_MANDATORY: 1,  # without it a full or dead route drops in silence
    zmq.HANDSHAKE_IVL: 2000,  # reaps half-open greetings
    zmq.ZAP_ENFORCE_DOMAIN: 1,  # refuse all while the authenticator is not there
}
_CALLER: Final[Mapping[int, int]] = {
    zmq.MAXMSGSIZE: MAX_PIECE_BYTES + CURVE_BYTES + 1024,  # a piece, or an Offer
    zmq.SNDHWM: 64,
    zmq.RCVHWM: 64,
    zmq.IMMEDIATE: 1,  # nothing is queued for a neighbour that is not there
    zmq.CONNECT_TIMEOUT: 3000,
    zmq.RECONNECT_IVL: 200,
    zmq.RECONNECT_IVL_MAX: 5000,
    zmq.HANDSHAKE_IVL: 5000,
}


def raise_descriptor_limit() -> int:
    """Allow this process as many open files as the system lets it; returns how many.

    A listener that is out of descriptors answers nobody and burns a core until some are closed.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class ZeroMq:
    """One context and one CURVE key pair. Close it when the threads that use it have ended."""

    def __init__(
        self, *, public_key: bytes, secret_key: bytes, security: Security | None = None
    ) -> None:
        """Make a context; no socket yet.

        Args:
            public_key: CURVE25519, 32 raw bytes.
            secret_key: the other half.
            security: CURVE, unless a benchmark asks for `Clear`.
        """
        self._security = security or Curve(public_key, secret_key)
        keep_frame_pages()
        self._context: zmq.Context[_Socket] = zmq.Context(IO_THREADS)
        self._context.set(zmq.MAX_SOCKETS, min(MAX_SOCKETS, self._context.get(zmq.SOCKET_LIMIT)))
        self._zap: Zap | None = None
        self._domains = count(1)
        self._made: set[_Listener | Dealer | SocketWake] = set()

    def listen(
        self, bind: str, *, admits: Admits, offended: Offended = lambda _key, _reason: None
    ) -> "_Listener":
        self._security.check(bind)
        if self._zap is None:
            # before the first listener: libzmq asks at once
            self._zap = Zap(self._context, key_of=self._security.key_of)
        domain = f"listener-{next(self._domains)}".encode()
        socket = self._context.socket(zmq.ROUTER)
        ours: Options = {zmq.ZAP_DOMAIN: domain}
        _configure(socket, bind, (_COMMON, _LISTENER, self._security.listener, ours))
        lines = Lines(socket, offended)
        self._zap.add(domain, admits, lines)
        try:
            socket.bind(bind)
        except zmq.ZMQError as error:
            self._zap.discard(domain)
            socket.close(0)
            raise _bind_error(bind, error) from error
        listener = _Listener(socket, lines, closed=self._made.discard)
        self._made.add(listener)
        return listener

    def call(self, address: str, *, server_key: bytes) -> "Dealer":
        self._security.check(address)
        socket = self._context.socket(zmq.DEALER)
        _configure(socket, address, (_COMMON, _CALLER, self._security.caller(server_key)))
        try:
            caller = Dealer(socket, address, closed=self._made.discard)
        except zmq.ZMQError as error:
            socket.close(0)
            raise AddressError(
                f"{address} cannot be reached: {error}", hint="it must be tcp://HOST:PORT"
            ) from error
        self._made.add(caller)
        return caller

    def poller(self) -> "_Poller":
        return _Poller(self._context)

    def wake(self) -> SocketWake:
        wake = SocketWake()
        self._made.add(wake)
        return wake

    def close(self) -> None:
        for item in tuple(self._made):
            item.close()
        self._made.clear()
        if self._zap is not None:
            self._zap.stop()
        self._context.term()  # returns when the lingering frames are out, or their time is


class _Listener:
    def __init__(
        self, socket: _Socket, lines: Lines, *, closed: Callable[["_Listener"], None]
    ) -> None:
        self.socket = socket
        self._lines = lines
        self._closed = closed
        self.address = socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self) -> Arrival | None:
        for _ in range(JUNK_PER_CALL):
            try:
                route, *frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            if not frames:
                continue
            try:
                key = bytes.fromhex(str(frames[0].get("User-Id")))
            except zmq.ZMQError:
                continue  # nobody authenticated it: cannot be, and must not matter
            if not self._lines.heard(int(str(frames[0].get(zmq.SRCFD))), key):
                continue
            payload = frames[1].bytes if len(frames) > 1 else None
            return Arrival(route.bytes, key, frames[0].bytes, payload)
        return None

    def send(self, route: bytes, header: bytes, payload: memoryview | None = None) -> Sent:
        frames = (route, header) if payload is None else (route, header, payload)
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return Sent.GONE
        return Sent.YES

    def hang_up(self, key: bytes) -> None:
        self._lines.hang_up(key)

    def pardon(self, key: bytes) -> None:
        self._lines.pardon(key)

    def close(self) -> None:
        self.socket.close()
        self._closed(self)


class _Poller:
    def __init__(self, context: "zmq.Context[_Socket]") -> None:
        self._context = context
        self._poller = zmq.Poller()
        self._items: dict[object, Pollable] = {}  # by what zmq calls it
        self._callers: set[Dealer] = set()
        self._clock = MonotonicClock()

    def add(self, item: Pollable) -> None:
        for part in _parts(item):
            self._items[part] = item
            self._poller.register(part, zmq.POLLIN)
        if isinstance(item, Dealer):
            self._callers.add(item)

    def discard(self, item: Pollable) -> None:
        for part in [part for part, known in self._items.items() if known is item]:
            del self._items[part]
            self._poller.unregister(part)
        if isinstance(item, Dealer):
            self._callers.discard(item)

    def poll(self, timeout_s: float | None) -> Sequence[Pollable]:
        until_s = math.inf if timeout_s is None else self._clock.now_s() + timeout_s
        while True:
            if self._context.closed:  # a closed socket would be polled as descriptor 0
                raise TransportClosedError("the transport was closed")
            now_s = self._clock.now_s()
            for caller in self._callers:
                caller.tend(now_s)
            next_s = min((until_s, *(caller.redial_at_s for caller in self._callers)))
            ready = self._wait(None if next_s == math.inf else max(0.0, next_s - now_s))
            if ready or self._clock.now_s() >= until_s:
                return ready

    def _wait(self, timeout_s: float | None) -> Sequence[Pollable]:
        parts = self._poller.poll(None if timeout_s is None else math.ceil(timeout_s * 1000))
        return list(dict.fromkeys(self._items[part] for part, _ in parts))


def _parts(item: Pollable) -> tuple["_Socket | int", ...]:
    if isinstance(item, int):
        return (item,)
    if isinstance(item, _Listener):
        return (item.socket,)
    if isinstance(item, Dealer):
        return item.socket, item.monitor
    if isinstance(item, SocketWake):
        return (item.fileno(),)
    raise TypeError(f"{item!r} is of another transport")


def _configure(
    socket: _Socket, address: str, tables: Iterable[Options | Mapping[int, int]]
) -> None:
    for table in tables:
        for option, value in table.items():
            socket.setsockopt(option, value)
    if "[" in address:  # off otherwise: with it, libzmq prefers IPv6 for every name
        socket.setsockopt(zmq.IPV6, 1)


def _bind_error(bind: str, error: zmq.ZMQError) -> AddressError:
    if error.errno == EADDRINUSE:
        return AddressError(f"{bind} is in use", hint="choose another port, or port 0 for any")
    return AddressError(
        f"cannot bind {bind}: {error}",
        hint="use tcp://ADDRESS:PORT with an address of this machine",
    )

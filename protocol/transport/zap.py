"""Which keys may connect: ZeroMQ asks here in every handshake, and silence means no.

One thread for each context answers ZAP (https://rfc.zeromq.org/spec/27). It fails closed in three
ways: an exception counts as no, an unknown domain counts as no, and every listener sets
`zap_enforce_domain`, without which libzmq lets any key in when nobody answers. The same thread
watches the connections that came of it (lines.py), however busy the listener's own thread is.
"""

import logging
import math
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Thread

import zmq

from protocol.clock import MonotonicClock
from protocol.transport.base import Admits
from protocol.transport.lines import Lines
from protocol.transport.wake import SocketWake

__all__ = ["Zap"]

_log = logging.getLogger(__name__)
ENDPOINT = "inproc://zeromq.zap.01"  # fixed by the ZAP specification
_VERSION = b"1.0"
_STOP_S = 5.0
CHECK_S = 0.1  # between looks at what came in: a member can send 30 MB in that time on loopback
CHECK_LINE_S = 0.0005  # more for each connection, so that looking stays cheap


@dataclass(frozen=True, slots=True, eq=False)
class _Door:
    """A listener: whom it takes, and who is there."""

    admits: Admits
    lines: Lines


class Zap:
    """Answers from construction until `stop`."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        *,
        key_of: Callable[[bytes, list[bytes]], bytes],
    ) -> None:
        """Bind and begin.

        Args:
            context: whose handshakes these are.
            key_of: gives the key that the credentials of a mechanism name, or fails.
        """
        self._key_of = key_of
        self._doors: dict[bytes, _Door] = {}  # by domain
        self._new: deque[Lines] = deque()  # not followed yet
        self._followed: dict[object, Lines] = {}  # by their monitor
        self._clock = MonotonicClock()
        self._check_at_s = 0.0
        self._signal = SocketWake()
        self._is_stopping = False
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._thread = Thread(target=self._serve, name="zap", daemon=False)
        self._thread.start()  # the socket goes with it

    def add(self, domain: bytes, admits: Admits, lines: Lines) -> None:
        self._doors[domain] = _Door(admits, lines)
        self._new.append(lines)
        self._signal.set()

    def discard(self, domain: bytes) -> None:
        self._doors.pop(domain, None)

    def stop(self) -> None:
        """Answer no more: from now on every listener refuses every key."""
        if self._thread.is_alive():
            self._is_stopping = True
            self._signal.set()
            self._thread.join(_STOP_S)
        self._signal.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._signal.fileno(), zmq.POLLIN)
        with ExitStack() as stack:
            stack.enter_context(self._socket)
            stack.callback(self._close_monitors)
            while not self._is_stopping:
                poller.poll(self._patience_ms())
                self._signal.clear()
                while self._new:
                    lines = self._new.popleft()
                    self._followed[lines.monitor] = lines
                    poller.register(lines.monitor, zmq.POLLIN)
                with suppress(zmq.Again):
                    frames = self._socket.recv_multipart(zmq.NOBLOCK)
                    # Before the answer: once it is out the connection may speak, and must be known.
                    self._follow(poller)
                    self._socket.send_multipart(self._answer(frames))
                self._follow(poller)
                self._check()

    def _patience_ms(self) -> int | None:
        """Until the next look; for ever while nobody is connected."""
        if not any(len(lines) for lines in self._followed.values()):
            return None
        return math.ceil(max(0.0, self._check_at_s - self._clock.now_s()) * 1000)

    def _follow(self, poller: zmq.Poller) -> None:
        now_s = self._clock.now_s()
        for lines in tuple(self._followed.values()):
            if not lines.follow(now_s):
                poller.unregister(lines.monitor)
                del self._followed[lines.monitor]
                lines.monitor.close()

    def _check(self) -> None:
        now_s = self._clock.now_s()
        if now_s < self._check_at_s:
            return
        for lines in self._followed.values():
            lines.check()
        num_lines = sum(len(lines) for lines in self._followed.values())
        self._check_at_s = now_s + CHECK_S + CHECK_LINE_S * num_lines

    def _close_monitors(self) -> None:
        for lines in (*self._followed.values(), *self._new):
            lines.monitor.close()

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        """Frames of a reply: version, request, status, text, user, metadata."""
        request = frames[1] if len(frames) > 1 else b""
        key = self._admitted(frames)
        if key is None:
            return [_VERSION, request, b"400", b"this key is not admitted here", b"", b""]
        return [_VERSION, request, b"200", b"OK", key.hex().encode(), b""]

    def _admitted(self, frames: list[bytes]) -> bytes | None:
        try:
            version, _, domain, address, _, mechanism, *credentials = frames
            door = self._doors[domain]
            key = self._key_of(mechanism, credentials)
            is_in = version == _VERSION and door.lines.admits(key) and door.admits(key) is True
            if is_in:
                door.lines.admitted(address.decode(), key, self._clock.now_s())
        except Exception:  # noqa: BLE001 - whatever went wrong, no is the answer, and the next waits
            _log.exception("refused a key because the check failed")
            return None
        return key if is_in else None

"""A connection to one listener over ZeroMQ, kept alive: a DEALER and its monitor.

libzmq reconnects after a lost connection by itself. After a refused key it does not: the socket is
dead until it is disconnected and connected anew, which `tend` does when it is time.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import zmq
from zmq.utils.monitor import recv_monitor_message

from protocol.clock import MonotonicClock
from protocol.transport.base import CallerEvent

__all__ = ["Dealer"]

_Socket: TypeAlias = "zmq.Socket[bytes]"

REDIAL_S, MAX_REDIAL_S = 0.2, 5.0  # after a refusal: doubled each time
STUCK_S = 15.0  # without a connection, though libzmq tries every 5 s at least: dial anew
_REFUSALS = zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED | _REFUSALS


class Dealer:
    def __init__(
        self, socket: _Socket, address: str, *, closed: Callable[["Dealer"], None]
    ) -> None:
        self.socket = socket
        self._closed = closed
        self._address = address
        self._clock = MonotonicClock()
        self._is_connected = False
        self._redial_s = REDIAL_S
        self.monitor = socket.get_monitor_socket(_WATCHED)
        self.monitor.setsockopt(zmq.LINGER, 0)
        self.redial_at_s = self._clock.now_s() + STUCK_S  # infinite while connected
        try:
            socket.connect(address)
        except zmq.ZMQError:
            self.close()
            raise

    def send(self, header: bytes) -> bool:
        try:
            self.socket.send(header, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(
        self, into: Callable[[bytes], memoryview | None] | None = None
    ) -> bytes | tuple[bytes, int] | CallerEvent | None:
        # Frames first: those of a connection that broke came before it broke, and a new one brings
        # none before CONNECTED was told, because nobody has been asked for any.
        try:
            header = self.socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return self._event()
        if not self.socket.getsockopt(zmq.RCVMORE):
            return header
        try:
            place = into(header) if into is not None else None
            if place is None:
                return header, 0
            size = self.socket.recv_into(place, flags=zmq.NOBLOCK)
            is_exact = size == len(place) and not self.socket.getsockopt(zmq.RCVMORE)
            return header, size if is_exact else -1
        finally:
            while self.socket.getsockopt(zmq.RCVMORE):
                self.socket.recv(zmq.NOBLOCK, copy=False)

    def tend(self, now_s: float) -> None:
        """Dial anew if that is due."""
        if now_s >= self.redial_at_s:
            with suppress(zmq.ZMQError):  # it may have forgotten the address by itself
                self.socket.disconnect(self._address)
            self.socket.connect(self._address)
            self.redial_at_s = now_s + STUCK_S

    def close(self) -> None:
        if not self.socket.closed:
            self.socket.disable_monitor()
            self.monitor.close(0)
            self.socket.close()
            self._closed(self)

    def _event(self) -> CallerEvent | None:
        while True:
            try:
                event = recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]
            except zmq.Again:
                return None
            now_s = self._clock.now_s()
            was_connected = self._is_connected
            self._is_connected = event == zmq.Event.HANDSHAKE_SUCCEEDED
            if self._is_connected:
                self._redial_s, self.redial_at_s = REDIAL_S, math.inf
                return CallerEvent.CONNECTED
            if event & _REFUSALS:
                self.redial_at_s = now_s + self._redial_s
                self._redial_s = min(2 * self._redial_s, MAX_REDIAL_S)
                return CallerEvent.REFUSED
            self.redial_at_s = min(self.redial_at_s, now_s + STUCK_S)
            if was_connected:
                return CallerEvent.DISCONNECTED

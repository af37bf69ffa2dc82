"""The connections of one listener: how much each has sent that makes no whole message, and cutting.

libzmq hands over whole messages only, and limits a frame, not a message: one of endlessly many
frames grows in its memory, and nobody is told whose it is. It does not close a live connection
either. But a connection is a file descriptor of this process: the kernel counts what came in on it
(TCP_INFO), libzmq says on which one each message came (SRCFD), and shutting it down ends it.

A connection is sequential: once a message has come, all that came before it was whole. So what was
received since then belongs to one message that is not whole yet.
"""

import logging
import os
import resource
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

import zmq
from zmq.utils.monitor import recv_monitor_message

from protocol.transport.base import Offended

__all__ = ["Lines"]

_log = logging.getLogger(__name__)
_Socket: TypeAlias = "zmq.Socket[bytes]"

# A request has 4 kB, and at most 256 of them wait in libzmq; the kernel holds 6 MB by default.
MAX_UNFINISHED_BYTES = 16 << 20
MAX_ALL_UNFINISHED_BYTES = 32 << 20  # of all connections: a stranger may open many at a coordinator
MAX_LINES = 4096  # connections at a time, and half of the descriptors; more are cut at once
HANDSHAKE_S = 3.0  # from being accepted to being asked about, at most; libzmq gives up after 2
SLACK_S = 1.0  # the two are told on sockets of their own: a busy thread may read the second first
MAX_PENDING = 4096  # handshakes whose connection has not spoken yet

_BYTES_RECEIVED = 128  # offset of tcpi_bytes_received in struct tcp_info, linux/tcp.h
_TCP_INFO_BYTES = 136
_WATCHED: Final = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED | zmq.Event.MONITOR_STOPPED
_numbers = count(1)


@dataclass(slots=True, eq=False)
class _Line:
    fd: int
    peer: object  # its address and port, to know that the descriptor is still this connection
    ip: str
    accepted_at_s: float
    key: bytes | None = None  # once it has spoken
    before_bytes: int = 0  # received before the message that is under way
    has_spoken: bool = False  # since it was last looked at


class Lines:
    """Belongs to the thread that answers ZAP, but for `heard`, `hang_up` and `pardon`."""

    def __init__(self, listener: _Socket, offended: Offended) -> None:
        """Watch a listener that is not bound yet."""
        self._offended = offended
        self._most = min(MAX_LINES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._lines: dict[int, _Line] = {}  # by descriptor
        self._pending: deque[tuple[float, str, bytes]] = deque(maxlen=MAX_PENDING)
        self._early: dict[int, bytes] = {}  # who spoke on a descriptor that nobody told of yet
        self._banned: set[bytes] = set()
        endpoint = f"inproc://lines-{next(_numbers)}"
        listener.monitor(endpoint, _WATCHED)
        # Connected before anything can be told: the listener's IO thread would wait for it.
        self.monitor: _Socket = listener.context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.LINGER, 0)
        self.monitor.connect(endpoint)

    def __len__(self) -> int:
        return len(self._lines)

    # -- in the listener's thread ---------------------------------------------------------------

    def heard(self, fd: int, key: bytes) -> bool:
        """Note a whole message; False when its sender is banned."""
        if key in self._banned:
            return False
        if fd not in self._lines:
            self._early[fd] = key  # libzmq may tell of a connection after that has begun
        line = self._lines.get(fd)
        if line is not None:
            line.key, line.has_spoken = key, True
        return True

    def hang_up(self, key: bytes) -> None:
        """Cut every connection of this key that has spoken."""
        for line in tuple(self._lines.values()):
            if line.key == key:
                _cut(line)

    def pardon(self, key: bytes) -> None:
        """Ban it no more."""
        self._banned.discard(key)

    # -- in the thread that answers ZAP ---------------------------------------------------------

    def admits(self, key: bytes) -> bool:
        return key not in self._banned

    def admitted(self, ip: str, key: bytes, now_s: float) -> None:
        """Note a handshake, to know whose connection it is before that has spoken."""
        self._pending.append((now_s, ip, key))

    def follow(self, now_s: float) -> bool:
        """Take note of connections that come and go; False when the listener is closed."""
        while True:
            try:
                event = recv_monitor_message(self.monitor, zmq.NOBLOCK)
            except zmq.Again:
                return True
            if event["event"] == zmq.Event.MONITOR_STOPPED:
                return False
            self._lines.pop(event["value"], None)
            if event["event"] == zmq.Event.ACCEPTED:
                self._accept(event["value"], now_s)
            self._early.pop(event["value"], None)

    def _accept(self, fd: int, now_s: float) -> None:
        try:
            with _duplicate(fd) as it:
                peer = it.getpeername()
        except OSError:
            return  # gone already
        line = self._lines[fd] = _Line(fd, peer, str(peer[0]), now_s)
        line.key = line.key or self._early.get(fd)
        if len(self._lines) > self._most:
            self._drop(line, f"{self._most} connections are open, no more are taken")

    def check(self) -> None:
        """Cut whoever has sent too much that makes no message, and ban its key.

        Where each has sent little and all together too much, those with most are cut, and nobody is
        banned: which of them mean harm cannot be said, and who is cut may come again.
        """
        unfinished: list[tuple[int, _Line]] = []
        for line in tuple(self._lines.values()):
            received = _received_bytes(line.fd)
            if received is None:
                self._lines.pop(line.fd, None)
            elif line.has_spoken:
                line.has_spoken, line.before_bytes = False, received
            elif received - line.before_bytes > MAX_UNFINISHED_BYTES:
                self._punish(line, received - line.before_bytes)
            else:
                unfinished.append((received - line.before_bytes, line))
        self._relieve(unfinished)

    def _relieve(self, unfinished: list[tuple[int, _Line]]) -> None:
        left = total = sum(num_bytes for num_bytes, _ in unfinished)
        if total <= MAX_ALL_UNFINISHED_BYTES:
            return
        for num_bytes, line in sorted(unfinished, key=lambda each: each[0], reverse=True):
            self._drop(
                line,
                f"{num_bytes >> 10} KiB of a message without an end, and with those of others "
                f"{total >> 20} MiB, at most {MAX_ALL_UNFINISHED_BYTES >> 20} are taken",
            )
            left -= num_bytes
            if left <= MAX_ALL_UNFINISHED_BYTES // 2:
                return

    def _punish(self, line: _Line, num_bytes: int) -> None:
        key = line.key or self._suspect(line)
        reason = (
            f"{num_bytes >> 20} MiB of a message without an end, at most "
            f"{MAX_UNFINISHED_BYTES >> 20} are taken"
        )
        if key is not None:
            self._banned.add(key)
            self.hang_up(key)
        self._drop(line, reason)
        self._offended(key, reason)

    def _suspect(self, line: _Line) -> bytes | None:
        """Whose connection it must be, if only one handshake fits that no other has spoken for."""
        spoken = [other for other in self._lines.values() if other.key is not None]
        keys = set()
        for at_s, ip, key in self._pending:
            is_other = any(other.key == key and _fits(at_s, other) for other in spoken)
            if ip == line.ip and _fits(at_s, line) and not is_other:
                keys.add(key)
        return keys.pop() if len(keys) == 1 else None

    def _drop(self, line: _Line, reason: str) -> None:
        _log.warning("cut the connection of %s: %s", line.ip, reason)
        self._lines.pop(line.fd, None)
        _cut(line)


def _fits(asked_at_s: float, line: _Line) -> bool:
    """Can it be this connection that ZAP was asked about then?"""
    return -SLACK_S <= asked_at_s - line.accepted_at_s <= HANDSHAKE_S


def _cut(line: _Line) -> None:
    """End a connection, unless its descriptor is another one by now."""
    with suppress(OSError), _duplicate(line.fd) as it:
        if it.getpeername() == line.peer:
            it.shutdown(socket.SHUT_RDWR)


def _duplicate(fd: int) -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=os.dup(fd))


def _received_bytes(fd: int) -> int | None:
    """What has come in on a connection since it began; None when it is none any more."""
    try:
        borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
    except OSError:
        return None  # closed by now
    try:
        info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
    finally:
        borrowed.detach()
    if len(info) < _TCP_INFO_BYTES:
        return None
    return int(struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0])

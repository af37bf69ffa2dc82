"""A pipe of whole messages between a node and its trainer process, over one socket pair.

A frame is a length of four bytes and an encoded message of peer/work.py. Either side sees the end
of the other as `EOFError`.
"""

import socket
import struct
from collections import deque
from typing import Self

from peer.work import MAX_FRAME_BYTES, WORK, Command, Reply
from protocol.errors import RemoteProtocolError

__all__ = ["Pipe"]

_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = 1 << 18
_BUFFER_BYTES = 4 << 20  # so that a node never waits for a busy trainer to read its next command


class Pipe:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._received = bytearray()
        self._ready: deque[Command | Reply] = deque()
        self._ended = False

    @classmethod
    def pair(cls) -> tuple["Pipe", socket.socket]:
        """One end to keep, and the socket to hand to the other process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, message: Command | Reply) -> None:
        """Send one message whole.

        Raises:
            BrokenPipeError: the other side has ended.
        """
        data = WORK.encode(message)
        self._sock.settimeout(None)
        self._sock.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, timeout_s: float | None) -> Command | Reply | None:
        """The next message; None when none came in time. None as the time waits without a bound.

        Raises:
            EOFError: the other side has ended, and every message of it was read.
            RemoteProtocolError: what came is not a message.
        """
        while not self._ready:
            if self._ended:
                raise EOFError
            self._sock.settimeout(timeout_s)
            try:
                chunk = self._sock.recv(_CHUNK_BYTES)
            except (TimeoutError, BlockingIOError):
                return None
            except ConnectionResetError:
                chunk = b""
            self._ended = not chunk
            self._received += chunk
            self._split()
        return self._ready.popleft()

    def _split(self) -> None:
        while len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            if length > MAX_FRAME_BYTES:
                raise RemoteProtocolError(f"a frame of {length} bytes, {MAX_FRAME_BYTES} allowed")
            end = _LENGTH.size + length
            if len(self._received) < end:
                return
            self._ready.append(WORK.decode(bytes(self._received[_LENGTH.size : end])))
            del self._received[:end]

"""What crosses between a simulation and a worker: a peer's name and bytes, over a socket."""

import socket
import struct
from contextlib import suppress

__all__ = ["Frames"]

_HEAD = struct.Struct(">BI")  # bytes of the name, bytes of the rest
_BUFFER_BYTES = 4 << 20  # so that a simulation seldom waits for a busy worker to read


class Frames:
    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._socket = sock
        self._stream = sock.makefile("rb")

    def send(self, name: bytes, data: bytes) -> None:
        """Send one frame whole; `name` has at most 255 bytes.

        Raises:
            BrokenPipeError: the other side has ended.
        """
        self._socket.sendall(_HEAD.pack(len(name), len(data)) + name + data)

    def receive(self) -> tuple[bytes, bytes] | None:
        """The next frame, waited for without a bound; None when the other side has ended."""
        try:
            head = self._stream.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return None
            of_name, of_data = _HEAD.unpack(head)
            name, data = self._stream.read(of_name), self._stream.read(of_data)
        except ConnectionResetError:
            return None
        return (name, data) if len(name) == of_name and len(data) == of_data else None

    def end(self) -> None:
        """Say that nothing more will be sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

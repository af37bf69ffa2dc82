"""Something that a poller waits on and any thread may set: a pair of sockets, one byte."""

import socket
from contextlib import suppress

__all__ = ["SocketWake"]


class SocketWake:
    """Set it from any thread; clear and close it in the thread that waits on it."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.settimeout(0)
        self._writer.settimeout(0)

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        with suppress(BlockingIOError):  # full of bytes not yet read: set as can be
            self._writer.send(b"\0")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

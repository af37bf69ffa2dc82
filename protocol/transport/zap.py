"""Which keys may connect: ZeroMQ asks here in every handshake, and silence means no.

One thread for each context answers ZAP (https://rfc.zeromq.org/spec/27). It fails closed in three
ways: an exception counts as no, an unknown domain counts as no, and every listener sets
`zap_enforce_domain`, without which libzmq lets any key in when nobody answers.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import zmq

from protocol.transport.base import Admits
from protocol.transport.wake import SocketWake

__all__ = ["Zap"]

_log = logging.getLogger(__name__)
ENDPOINT = "inproc://zeromq.zap.01"  # fixed by the ZAP specification
_VERSION = b"1.0"
_STOP_S = 5.0


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
        self._domains: dict[bytes, Admits] = {}
        self._stopping = SocketWake()
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._thread = Thread(target=self._serve, name="zap", daemon=False)
        self._thread.start()  # the socket goes with it

    def add(self, domain: bytes, admits: Admits) -> None:
        self._domains[domain] = admits

    def discard(self, domain: bytes) -> None:
        self._domains.pop(domain, None)

    def stop(self) -> None:
        """Answer no more: from now on every listener refuses every key."""
        if self._thread.is_alive():
            self._stopping.set()
            self._thread.join(_STOP_S)
        self._stopping.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._stopping.fileno(), zmq.POLLIN)
        with self._socket:
            while self._stopping.fileno() not in dict(poller.poll()):
                with suppress(zmq.Again):
                    frames = self._socket.recv_multipart(zmq.NOBLOCK)
                    self._socket.send_multipart(self._answer(frames))

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        """Frames of a reply: version, request, status, text, user, metadata."""
        request = frames[1] if len(frames) > 1 else b""
        key = self._admitted(frames)
        if key is None:
            return [_VERSION, request, b"400", b"this key is not admitted here", b"", b""]
        return [_VERSION, request, b"200", b"OK", key.hex().encode(), b""]

    def _admitted(self, frames: list[bytes]) -> bytes | None:
        try:
            version, _, domain, _, _, mechanism, *credentials = frames
            admits = self._domains[domain]
            key = self._key_of(mechanism, credentials)
            is_in = version == _VERSION and admits(key) is True
        except Exception:  # noqa: BLE001 - whatever went wrong, no is the answer, and the next waits
            _log.exception("refused a key because the check failed")
            return None
        return key if is_in else None

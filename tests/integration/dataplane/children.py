"""Serving and pulling as processes of their own, so that they can be killed."""

import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread

from peer.dataplane.events import Event, Progressed
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller, PullOrder
from peer.dataplane.server import Server
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.transport.keys import Identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import decode_document
from protocol.wire.layout import schema_digest
from protocol.wire.messages import SnapshotManifest

A = PeerId("a")
RUN = bytes(16)
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Shop:
    keys: Identity
    names: dict[bytes, PeerId]
    ref: SnapshotRef


@contextmanager
def opened(shop: Shop, *, max_bytes_s: float = math.inf) -> Iterator[tuple[Server, Inbox[Event]]]:
    """A server of one snapshot, and what it tells."""
    with line_of(shop.keys) as (transport, events):
        server = Server(
            transport,
            bind="tcp://127.0.0.1:0",
            name=A,
            sign_secret=shop.keys.sign_secret,
            events=events,
            max_bytes_s=max_bytes_s,
        )
        with server:
            tensors = decode_document(SnapshotManifest, shop.ref.manifest).tensors
            server.open(RUN, schema_digest(tensors))
            server.members(shop.names)
            server.publish(shop.ref, 1)
            yield server, events


@contextmanager
def line_of(keys: Identity) -> Iterator[tuple[ZeroMq, Inbox[Event]]]:
    """A transport with these keys, and what its threads tell."""
    transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
    with closing(transport):
        yield transport, Inbox(transport.wake())


def serve(pipe: Connection, shop: Shop) -> None:
    """Serve one snapshot until killed, or until the other end of the pipe is closed."""
    with opened(shop) as (server, _), suppress(EOFError):
        pipe.send(server.address)
        while True:
            pipe.recv()
            pipe.send(resident_bytes())


def pull(pipe: Connection, keys: Identity, order: PullOrder) -> None:
    """Pull, telling how far it is, until killed."""
    with line_of(keys) as (transport, events), Puller(transport, events=events) as puller:
        poller = transport.poller()
        poller.add(events.wake)
        puller.pull(order)
        while True:
            poller.poll(None)
            for event in events.drain():
                pipe.send(event.num_bytes if isinstance(event, Progressed) else -1)


def resident_bytes() -> int:
    """Of this process, beside the files that it has mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024


@contextmanager
def running(target: Callable[..., None], *args: object) -> Iterator[tuple[Connection, int]]:
    """A process, with a pipe to it; it is killed at the end, if not before."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs, *args))
    child.start()
    theirs.close()
    assert child.pid is not None
    try:
        yield ours, child.pid
    finally:
        ours.close()
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        child.join()
        child.close()


class Road:
    """Forwards TCP to wherever `port` is now, and counts what comes back."""

    def __init__(self, stack: ExitStack) -> None:
        self.port = 0  # nobody is there
        self.came_bytes = 0
        self._at: tuple[int, Callable[[], None]] | None = None
        self._lock = Lock()
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()
        stack.callback(self._close)

    def at(self, num_bytes: int, action: Callable[[], None]) -> None:
        """Do something once so many bytes have come back."""
        self._at = num_bytes, action

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                here, _ = self._listener.accept()
                self._join(here)

    def _join(self, here: socket.socket) -> None:
        try:
            there = socket.create_connection(("127.0.0.1", self.port))
        except OSError:
            here.close()
            return
        self._open += [here, there]
        for one, other, counts in ((here, there, False), (there, here, True)):
            thread = Thread(target=self._forward, args=(one, other), kwargs={"counts": counts})
            self._threads.append(thread)
            thread.start()

    def _forward(self, source: socket.socket, target: socket.socket, *, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if counts:
                    self._count(len(data))
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self.came_bytes += num_bytes
            if self._at is not None and self.came_bytes >= self._at[0]:
                action, self._at = self._at[1], None
                action()

    def _close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._open:
            end.close()

"""A peer's port as a process of its own, what it costs at any moment, and roads that turn bad."""

import math
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from select import select
from threading import Event as Flag
from threading import Thread
from typing import Any

from peer.dataplane.events import Crashed, Event, Misbehaved, Pulled, PullFailed, ShutOut
from peer.dataplane.puller import Puller, PullOrder
from protocol.clock import MonotonicClock
from protocol.ids import PeerId
from protocol.transport.keys import Identity, new_identity
from tests.integration.dataplane.children import Shop, line_of, opened, resident_bytes, running

__all__ = [
    "GREETING",
    "Footprint",
    "Port",
    "Tap",
    "connections",
    "fetch",
    "is_cut",
    "members",
    "port",
    "pour",
    "until",
]

WITHIN_S = 30.0  # a bound, not a wait
CHUNK_BYTES = 1 << 16
# Of ZMTP 3.1: signature, version, mechanism, a client's, filler.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)


@dataclass(frozen=True)
class Footprint:
    """What a process takes that a stranger might make grow."""

    resident_bytes: int  # but mapped files
    descriptors: int
    threads: int


def footprint() -> Footprint:
    return Footprint(resident_bytes(), _entries("/proc/self/fd"), _entries("/proc/self/task"))


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def keep_shop(pipe: Connection, shop: Shop, max_bytes_s: float = math.inf) -> None:
    """Serve until the other end of the pipe is closed; do what comes through it.

    A mapping is who is admitted from now on; a list is keys that are refused; anything else is
    answered by the footprint, and by what the server told since.
    """
    with opened(shop, max_bytes_s=max_bytes_s) as (server, events), suppress(EOFError):
        pipe.send(server.address)
        while True:
            match pipe.recv():
                case dict() as names:
                    server.members(names)
                    pipe.send("done")
                case list() as refused:
                    server.refuse(refused)
                    pipe.send("done")
                case _:
                    told = [e for e in events.drain() if isinstance(e, Misbehaved | ShutOut)]
                    pipe.send((footprint(), told))


def fetch(pipe: Connection, keys: Identity, order: PullOrder) -> None:
    """Pull until the other end of the pipe is closed; any word is answered by the footprint."""
    with line_of(keys) as (transport, events), Puller(transport, events=events) as puller:
        poller = transport.poller()
        poller.add(events.wake)
        poller.add(pipe.fileno())
        puller.pull(order)
        with suppress(EOFError):
            while True:
                if pipe.fileno() in poller.poll(None):
                    pipe.recv()
                    pipe.send(footprint())
                for event in events.drain():
                    if isinstance(event, Pulled | PullFailed | Crashed):
                        pipe.send(event)


class Port:
    """A running shop, as a test sees it."""

    def __init__(self, pipe: Connection, shop: Shop) -> None:
        self._pipe = pipe
        self._shop = shop
        assert pipe.poll(WITHIN_S)
        self.address = str(pipe.recv())
        self.number = int(self.address.rpartition(":")[2])
        self.key = shop.keys.curve_public
        self.told: list[Event] = []

    def admit(self, names: dict[bytes, PeerId]) -> None:
        assert self._order(names) == "done"

    def refuse(self, keys: Iterable[bytes]) -> None:
        assert self._order(list(keys)) == "done"

    def _order(self, order: object) -> Any:
        self._pipe.send(order)
        assert self._pipe.poll(WITHIN_S)
        return self._pipe.recv()

    def footprint(self) -> Footprint:
        seen, told = self._order("footprint")
        self.told += told
        assert isinstance(seen, Footprint)
        return seen

    def has_told(self) -> bool:
        """Has anybody misbehaved so far?"""
        self.footprint()
        return bool(self.told)

    @contextmanager
    def bounded(self, *, grown_bytes: int) -> Iterator[Callable[[], None]]:
        """Hold the shop to its footprint: in between, when it is called, and at the end.

        Args:
            grown_bytes: more than this is not taken at any time. At the end every descriptor and
                thread that came has gone; in between there may be one for each connection.
        """
        before = self.footprint()

        def check() -> None:
            seen = self.footprint()
            assert seen.resident_bytes - before.resident_bytes <= grown_bytes, (before, seen)
            assert seen.threads == before.threads

        yield check
        check()
        until(lambda: self.footprint().descriptors <= before.descriptors)


@contextmanager
def port(shop: Shop) -> Iterator[Port]:
    with running(keep_shop, shop) as (pipe, _):
        yield Port(pipe, shop)


def until(is_so: Callable[[], bool]) -> None:
    """Wait for it, with a bound."""
    clock = MonotonicClock()
    end_s = clock.now_s() + WITHIN_S
    while not is_so():
        assert clock.now_s() < end_s
        select((), (), (), 0.02)


class Tap:
    """A road to a port for one connection, until a test takes it over in the middle of it.

    The two ends have shaken hands through it: what is sent afterwards, the port takes for bytes of
    the member that it knows.
    """

    def __init__(self, stack: ExitStack, number: int, *, limit: float = math.inf) -> None:
        """Pass on at most `limit` bytes towards the port; then stand still, open."""
        self._limit = limit
        self.passed_bytes = 0  # towards the port
        self.is_closed = False
        self.sent: list[bytes] = []  # towards the port, as it came
        self._number = number
        self._is_mute, self._is_deaf = Flag(), Flag()  # towards the port, and from it
        self._ends: list[socket.socket] = []
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()
        stack.callback(self._close)

    def seize(self) -> socket.socket:
        """From now on nothing is passed on, nor read, and what is sent here goes to the port."""
        self._is_mute.set()
        self._is_deaf.set()
        return self._ends[1]

    def turn(self) -> socket.socket:
        """Likewise, but what is sent here goes to the one that called."""
        self.seize()
        return self._ends[0]

    def deafen(self) -> None:
        """From now on nothing that the port says is read; what is said to it is passed on."""
        self._is_deaf.set()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            here, _ = self._listener.accept()
            there = socket.create_connection(("127.0.0.1", self._number))
            self._ends += [here, there]
            for one, other in ((here, there), (there, here)):
                thread = Thread(target=self._forward, args=(one, other))
                self._threads.append(thread)
                thread.start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        is_outward = target is self._ends[1]
        is_over = self._is_mute if is_outward else self._is_deaf
        with suppress(OSError):
            while not is_over.is_set():
                if not select([source], [], [], 0.01)[0]:
                    continue
                data = source.recv(CHUNK_BYTES)
                if not data or is_over.is_set():
                    break
                if is_outward:
                    self.sent = [*self.sent[-3:], data]
                    self.passed_bytes += len(data)
                target.sendall(data)
                while is_outward and self.passed_bytes >= self._limit and not is_over.wait(0.05):
                    pass
        self.is_closed = True
        if not is_over.is_set():
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        self._is_mute.set()
        self._is_deaf.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


def is_cut(connection: socket.socket) -> bool:
    """Has the other side closed it? What it said before is read."""
    connection.setblocking(False)
    try:
        while connection.recv(CHUNK_BYTES):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def pour(line: socket.socket) -> None:
    """Send on until the other side has cut it: what the kernel holds is taken, and no more."""
    line.setblocking(True)
    with suppress(ConnectionError, TimeoutError):
        for _ in range(64):
            line.sendall(bytes(1 << 20))
        raise AssertionError("64 MiB were taken")


def connections(stack: ExitStack, number: int, count: int) -> list[socket.socket]:
    there = ("127.0.0.1", number)
    return [stack.enter_context(socket.create_connection(there, WITHIN_S)) for _ in range(count)]


def members(num: int) -> tuple[list[Identity], dict[bytes, PeerId]]:
    """Keys of peers that a shop knows."""
    keys = [new_identity() for _ in range(num)]
    return keys, {key.curve_public: PeerId(f"m{at}") for at, key in enumerate(keys)}

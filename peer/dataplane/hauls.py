"""Pulls under way and the connections that they share: what the puller's thread owns."""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import assert_never

from peer.dataplane.bodies import ReceiveBuffer
from peer.dataplane.events import Event, Progressed, Pulled, PullFailed
from peer.dataplane.inbox import Inbox
from protocol.errors import AddressError, LayoutError, RemoteProtocolError
from protocol.ids import PeerId
from protocol.transport.base import Caller, CallerEvent, Pollable, Poller, Transport
from protocol.wire.codec import PEER
from protocol.wire.digest import digest
from protocol.wire.link_effects import Send
from protocol.wire.messages import Bye, Data, Err, PeerMessage, SnapshotManifest
from protocol.wire.pulling import Complete, Effect, Failed, Pull, Verify

__all__ = ["Hauls", "PullOrder"]

MAX_HAULS = 8  # at a time, of neighbours that can be reached; the others wait in order
REACH_S = 60.0  # for a neighbour's connection
MESSAGES_PER_TURN = 32  # from one neighbour, so that none starves the others
TELL_EVERY_S = 0.25  # progress of one pull


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOrder:
    """Fetch one snapshot."""

    ticket: int  # never used before
    neighbour: PeerId
    address: str
    server_key: bytes
    manifest: SnapshotManifest  # of the run's schema
    digest: bytes  # the snapshot's name
    path: Path  # where its body goes; overwritten, resized, reused between rounds


@dataclass(slots=True, eq=False)
class _Haul:
    """One pull, the buffer that it fills, and when its progress was last told."""

    order: PullOrder
    pull: Pull
    buffer: ReceiveBuffer
    told_at_s: float


@dataclass(slots=True, eq=False)
class _Line:
    """One neighbour's caller, and the hauls on it."""

    caller: Caller
    where: tuple[str, bytes]  # address and key
    is_connected: bool = False
    hauls: list[_Haul] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """An order for which there was no connection, or no room, yet."""

    order: PullOrder
    line: _Line
    until_s: float  # the connection must be there by then


class Hauls:
    def __init__(
        self,
        transport: Transport,
        poller: Poller,
        *,
        hashers: ThreadPoolExecutor,
        events: Inbox[Event],
        call_back: Callable[[Callable[[], None]], None],
    ) -> None:
        """Begin with nothing.

        Args:
            transport: makes the callers.
            poller: of the thread; callers are added to it.
            hashers: compute digests.
            events: where the node is told.
            call_back: has a function called in the thread, from any other.
        """
        self._transport = transport
        self._poller = poller
        self._hashers = hashers
        self._events = events
        self._call_back = call_back
        self._lines: dict[PeerId, _Line] = {}
        self._waiting: list[_Wait] = []
        self._xids = (number % 2**32 for number in count(1))

    @property
    def due_s(self) -> float | None:
        """When `turn` has something to do though nothing arrives."""
        times = [haul.pull.due_s for line in self._lines.values() for haul in line.hauls]
        times += [wait.until_s for wait in self._waiting if not wait.line.is_connected]
        return min((at_s for at_s in times if at_s is not None), default=None)

    def order(self, order: PullOrder, now_s: float) -> None:
        try:
            line = self._line(order, now_s)
        except AddressError as error:
            self._events.put(PullFailed(order.ticket, order.neighbour, str(error)))
            return
        self._waiting.append(_Wait(order, line, now_s + REACH_S))
        self._begin_waiting(now_s)

    def cancel(self, ticket: int, now_s: float) -> None:
        """Stop this pull, in whatever state it is; nothing more is told of it."""
        self._waiting = [wait for wait in self._waiting if wait.order.ticket != ticket]
        for line in self._lines.values():
            for haul in [haul for haul in line.hauls if haul.order.ticket == ticket]:
                self._carry_out(line, haul, haul.pull.cancel())
                self._end(line, haul)
        self._begin_waiting(now_s)

    def hang_up(self, neighbour: PeerId, now_s: float, *, reason: str) -> None:
        """Close the connection to a neighbour, failing what is under way on it."""
        line = self._lines.pop(neighbour, None)
        if line is None:
            return
        for haul in tuple(line.hauls):
            self._carry_out(line, haul, haul.pull.fail(reason))
        self._fail_waits([wait for wait in self._waiting if wait.line is line], reason)
        self._poller.discard(line.caller)
        line.caller.close()
        self._begin_waiting(now_s)

    def close(self) -> None:
        for line in self._lines.values():
            for haul in tuple(line.hauls):
                self._carry_out(line, haul, haul.pull.cancel())
                self._end(line, haul)
            self._poller.discard(line.caller)
            line.caller.close()
        self._lines.clear()
        self._waiting.clear()

    def turn(self, ready: Collection[Pollable], now_s: float) -> None:
        """Take what has arrived at the callers that are ready, and do what is due."""
        for name, line in tuple(self._lines.items()):
            if line.caller in ready:
                try:
                    self._hear(line, now_s)
                except RemoteProtocolError as error:
                    self.hang_up(name, now_s, reason=f"{name} broke the protocol: {error}")
            for haul in tuple(line.hauls):
                self._carry_out(line, haul, haul.pull.wake(now_s))
        late = [w for w in self._waiting if now_s >= w.until_s and not w.line.is_connected]
        self._fail_waits(late, f"not reached for {REACH_S:.0f} s")
        self._begin_waiting(now_s)

    def _begin_waiting(self, now_s: float) -> None:
        lines = [line for line in self._lines.values() if line.is_connected]
        room = MAX_HAULS - sum(len(line.hauls) for line in lines)
        for wait in [wait for wait in self._waiting if wait.line.is_connected][: max(room, 0)]:
            self._waiting.remove(wait)
            self._begin(wait, now_s)

    def _begin(self, wait: _Wait, now_s: float) -> None:
        order, line = wait.order, wait.line
        try:
            pull = Pull(order.manifest, digest=order.digest, xids=self._xids, now_s=now_s)
            buffer = ReceiveBuffer(order.path, num_bytes=pull.layout.body_bytes)
        except (LayoutError, OSError) as error:
            self._events.put(PullFailed(order.ticket, order.neighbour, str(error)))
            return
        haul = _Haul(order, pull, buffer, now_s)
        line.hauls.append(haul)
        self._carry_out(line, haul, (*pull.begin(), *pull.connected(now_s)))

    def _fail_waits(self, waits: Iterable[_Wait], reason: str) -> None:
        for wait in waits:
            self._waiting.remove(wait)
            self._events.put(PullFailed(wait.order.ticket, wait.order.neighbour, reason))

    def _line(self, order: PullOrder, now_s: float) -> _Line:
        where = (order.address, order.server_key)
        line = self._lines.get(order.neighbour)
        if line is not None and line.where != where:
            self.hang_up(order.neighbour, now_s, reason="the neighbour has moved")
            line = None
        if line is None:
            caller = self._transport.call(order.address, server_key=order.server_key)
            self._poller.add(caller)
            line = self._lines[order.neighbour] = _Line(caller, where)
        return line

    def _hear(self, line: _Line, now_s: float) -> None:
        def place(header: bytes) -> memoryview | None:
            message = PEER.decode(header)
            if not isinstance(message, Data):
                raise RemoteProtocolError(f"a payload after {type(message).__name__}")
            for haul in line.hauls:
                if (where := haul.pull.place(message)) is not None:
                    return haul.buffer.view[where.start : where.end]
            return None

        for _ in range(MESSAGES_PER_TURN):
            match line.caller.receive(place):
                case None:
                    return
                case CallerEvent() as event:
                    self._connection(line, event, now_s)
                case bytes() as header:
                    self._message(line, PEER.decode(header), 0, now_s)
                case (header, num_bytes):
                    self._message(line, PEER.decode(header), num_bytes, now_s)

    def _connection(self, line: _Line, event: CallerEvent, now_s: float) -> None:
        line.is_connected = event is CallerEvent.CONNECTED
        for haul in tuple(line.hauls):
            if line.is_connected:
                self._carry_out(line, haul, haul.pull.connected(now_s))
            else:
                haul.pull.disconnected()

    def _message(self, line: _Line, message: PeerMessage, num_bytes: int, now_s: float) -> None:
        if isinstance(message, Bye):
            return  # the control link is told too, and decides
        if not isinstance(message, Data | Err):
            raise RemoteProtocolError(f"{type(message).__name__} on a bulk connection")
        for haul in tuple(line.hauls):
            self._carry_out(line, haul, haul.pull.receive(message, num_bytes, now_s))
            if not haul.pull.is_done and now_s >= haul.told_at_s + TELL_EVERY_S:
                haul.told_at_s = now_s
                order = haul.order
                self._events.put(Progressed(order.ticket, order.neighbour, haul.pull.num_bytes))

    def _carry_out(self, line: _Line, haul: _Haul, effects: Iterable[Effect]) -> None:
        order = haul.order
        to_verify = []
        for effect in effects:
            match effect:
                case Send(message):
                    line.caller.send(PEER.encode(message))  # what is lost is asked for again
                case Verify():
                    to_verify.append(effect)
                case Complete():
                    self._end(line, haul)
                    self._events.put(Pulled(order.ticket, order.neighbour))
                case Failed(reason):
                    self._end(line, haul)
                    self._events.put(PullFailed(order.ticket, order.neighbour, reason))
                case _:
                    assert_never(effect)
        if to_verify:
            future = self._hashers.submit(_check, haul.buffer.view, to_verify)
            future.add_done_callback(
                lambda done: self._call_back(lambda: self._checked(line, haul, done))
            )

    def _checked(self, line: _Line, haul: _Haul, done: "Future[list[tuple[int, bool]]]") -> None:
        for tensor, is_good in done.result():
            self._carry_out(line, haul, haul.pull.verified(tensor=tensor, is_good=is_good))

    def _end(self, line: _Line, haul: _Haul) -> None:
        line.hauls.remove(haul)
        haul.buffer.close()


def _check(body: memoryview, verifies: Iterable[Verify]) -> list[tuple[int, bool]]:
    """For each tensor, whether its bytes have its digest. Runs in another thread."""
    return [
        (verify.tensor, digest(body[verify.place.start : verify.place.end]) == verify.digest)
        for verify in verifies
    ]

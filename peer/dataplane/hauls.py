"""Pulls under way and the connections that they share: what the puller's thread owns."""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import count
from pathlib import Path
from typing import assert_never

from peer.dataplane.bodies import ReceiveBuffer, ServedBody
from peer.dataplane.checking import Checker, Verdicts, Workers
from peer.dataplane.events import Event, Progressed, Pulled, PullFailed
from peer.dataplane.haul import Haul, Line, Placing, PullOrder, Wait
from peer.dataplane.holdings import Holdings
from peer.dataplane.inbox import Inbox
from peer.dataplane.rebuilding import Rebuilder
from peer.work import SnapshotRef
from protocol.errors import (
    AddressError,
    LayoutError,
    LocalProtocolError,
    RemoteProtocolError,
)
from protocol.ids import PeerId
from protocol.transport.base import CallerEvent, Pollable, Poller, Transport
from protocol.wire.codec import PEER, decode_document
from protocol.wire.layout import Layout, Place
from protocol.wire.link_effects import Send
from protocol.wire.messages import Bye, Data, Err, Part, PeerMessage, SnapshotManifest
from protocol.wire.pulling import Complete, Effect, Failed, Pull, Verify

__all__ = ["Hauls"]

MAX_HAULS = 8  # at a time, of neighbours that can be reached; the others wait in order
REACH_S = 60.0  # for a neighbour's connection
MESSAGES_PER_TURN = 32  # from one neighbour, so that none starves the others
TELL_EVERY_S = 0.25  # progress of one pull
OWN_KEPT = 2  # published snapshots whose tensors are not fetched from others


class Hauls:
    def __init__(
        self,
        transport: Transport,
        poller: Poller,
        *,
        hashers: Workers,
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
        self._lines: dict[PeerId, Line] = {}
        self._waiting: list[Wait] = []
        self._buffers: dict[Path, ReceiveBuffer] = {}  # kept from pull to pull
        self._holdings = Holdings()
        self._own: deque[str] = deque()  # sources that this node published, oldest first
        self._rebuilder = Rebuilder(hashers, call_back)
        self._rebuilding: dict[int, PullOrder] = {}
        self._xids = (number % 2**32 for number in count(1))

    @property
    def due_s(self) -> float | None:
        """When `turn` has something to do though nothing arrives."""
        times = [haul.pull.due_s for line in self._lines.values() for haul in line.hauls]
        times += [wait.until_s for wait in self._waiting if not wait.line.is_connected]
        return min((at_s for at_s in times if at_s is not None), default=None)

    def order(self, order: PullOrder, now_s: float) -> None:
        """Fetch this; what is still under way to one of its files is cancelled."""
        for old in [old for old in self._orders() if old.files & order.files]:
            self.cancel(old.ticket, now_s)
        try:
            line = self._line(order, now_s)
        except AddressError as error:
            self._events.put(PullFailed(order.ticket, order.neighbour, str(error)))
            return
        self._waiting.append(Wait(order, line, now_s + REACH_S))
        self._begin_waiting(now_s)

    def hold(self, snapshot: SnapshotRef) -> None:
        """What this node has published need not be fetched from a neighbour that has it too."""
        manifest = decode_document(SnapshotManifest, snapshot.manifest)
        if manifest.part is Part.STEP:
            return  # holds nothing that is not in the result
        tensors = manifest.tensors
        layout = Layout.of(tensors)
        num_bytes = layout.body_bytes
        try:
            body = ServedBody(Path(snapshot.path), offset=snapshot.offset, num_bytes=num_bytes)
        except (LocalProtocolError, OSError):
            return  # gone again: then it is fetched, as anything else
        digests = [spec.digest for spec in tensors]
        self._holdings.add(
            snapshot.path, body.piece(0, num_bytes), zip(digests, layout.places, strict=True)
        )
        self._own.append(snapshot.path)
        if len(self._own) > OWN_KEPT:
            self._holdings.drop(self._own.popleft())

    def cancel(self, ticket: int, now_s: float) -> None:
        """Stop this pull, in whatever state it is; nothing more is told of it."""
        self._waiting = [wait for wait in self._waiting if wait.order.ticket != ticket]
        self._rebuilder.cancel(ticket)
        self._rebuilding.pop(ticket, None)
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
        self._rebuilder.close()
        for source in (*map(str, self._buffers), *self._own):
            self._holdings.drop(source)
        for buffer in self._buffers.values():
            buffer.close()
        self._buffers.clear()

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

    def _orders(self) -> list[PullOrder]:
        """Of all that is under way."""
        hauls = [haul.order for line in self._lines.values() for haul in line.hauls]
        return [*(wait.order for wait in self._waiting), *hauls, *self._rebuilding.values()]

    def _begin_waiting(self, now_s: float) -> None:
        lines = [line for line in self._lines.values() if line.is_connected]
        room = MAX_HAULS - sum(len(line.hauls) for line in lines)
        for wait in [wait for wait in self._waiting if wait.line.is_connected][: max(room, 0)]:
            self._waiting.remove(wait)
            self._begin(wait, now_s)

    def _begin(self, wait: Wait, now_s: float) -> None:
        order, line = wait.order, wait.line
        try:
            layout = Layout.of(order.manifest.tensors)
            buffer = self._buffer(order.path, layout.body_bytes)
        except (LayoutError, OSError) as error:
            self._events.put(PullFailed(order.ticket, order.neighbour, str(error)))
            return
        held = self._held(order, layout)
        pull = Pull(
            order.manifest, digest=order.digest, xids=self._xids, now_s=now_s, held=held.keys()
        )
        haul = Haul(order, pull, buffer, now_s, held=frozenset(held))
        haul.checker = Checker(
            buffer.view,
            executor=self._hashers,
            tell=lambda verdicts: self._call_back(lambda: self._checked(line, haul, verdicts)),
        )
        line.hauls.append(haul)
        haul.checker.copy(
            (layout.places[number], source)
            for number, source in held.items()
            if source is not None and not _covered(layout.places[number], pull.spans)
        )
        self._carry_out(line, haul, (*pull.begin(), *pull.connected(now_s)))

    def _buffer(self, path: Path, num_bytes: int) -> ReceiveBuffer:
        """The file mapped for writing, as it was if it has the right size.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        buffer = self._buffers.get(path)
        if buffer is None or not buffer.fits(num_bytes):
            if buffer is not None:
                self._holdings.drop(str(path))
                self._buffers.pop(path).close()
            buffer = self._buffers[path] = ReceiveBuffer(path, num_bytes=num_bytes)
        return buffer

    def _held(self, order: PullOrder, layout: Layout) -> dict[int, memoryview | None]:
        """Tensors that are on this host, and where; None for those that are in place."""
        source = str(order.path)
        here = self._holdings.places(source)
        held: dict[int, memoryview | None] = {}
        for number, spec in enumerate(order.manifest.tensors):
            place = layout.places[number]
            if here.get(spec.digest) == place:
                held[number] = None
                continue
            found = self._holdings.find(spec.digest, place.end - place.start, besides=source)
            if found is not None:
                held[number] = found
        self._holdings.drop(source)  # it is about to be written
        return held

    def _fail_waits(self, waits: Iterable[Wait], reason: str) -> None:
        for wait in waits:
            self._waiting.remove(wait)
            self._events.put(PullFailed(wait.order.ticket, wait.order.neighbour, reason))

    def _line(self, order: PullOrder, now_s: float) -> Line:
        where = (order.address, order.server_key)
        line = self._lines.get(order.neighbour)
        if line is not None and line.where != where:
            self.hang_up(order.neighbour, now_s, reason="the neighbour has moved")
            line = None
        if line is None:
            caller = self._transport.call(order.address, server_key=order.server_key)
            self._poller.add(caller)
            line = self._lines[order.neighbour] = Line(caller, where)
        return line

    def _hear(self, line: Line, now_s: float) -> None:
        placing = Placing(line)
        for _ in range(MESSAGES_PER_TURN):
            match line.caller.receive(placing):
                case None:
                    return
                case CallerEvent() as event:
                    self._connection(line, event, now_s)
                case bytes() as header:
                    self._message(line, PEER.decode(header), 0, now_s)
                case (_, num_bytes):
                    self._message(line, placing.before, num_bytes, now_s)

    def _connection(self, line: Line, event: CallerEvent, now_s: float) -> None:
        line.is_connected = event is CallerEvent.CONNECTED
        for haul in tuple(line.hauls):
            if line.is_connected:
                self._carry_out(line, haul, haul.pull.connected(now_s))
            else:
                haul.pull.disconnected()

    def _message(self, line: Line, message: PeerMessage, num_bytes: int, now_s: float) -> None:
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

    def _carry_out(self, line: Line, haul: Haul, effects: Iterable[Effect]) -> None:
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
                    self._completed(haul)
                case Failed(reason):
                    self._end(line, haul)
                    self._events.put(PullFailed(order.ticket, order.neighbour, reason))
                case _:
                    assert_never(effect)
        haul.checker.verify(to_verify)

    def _completed(self, haul: Haul) -> None:
        """It is here; where it is a step, it is still to be carried out."""
        ticket, neighbour = haul.order.ticket, haul.order.neighbour
        if (order := haul.order.rebuild) is None:
            self._events.put(Pulled(ticket, neighbour, haul.pull.num_bytes))
            return
        try:
            layout = Layout.of(tensors := order.manifest.tensors)
            self._holdings.drop(str(order.path))  # it is about to be written
            buffer = self._buffer(order.path, layout.body_bytes)
        except (LayoutError, OSError) as error:
            self._events.put(PullFailed(ticket, neighbour, str(error)))
            return

        def done(fault: str) -> None:
            del self._rebuilding[ticket]
            if fault:
                self._events.put(PullFailed(ticket, neighbour, fault))
                return
            here = zip((spec.digest for spec in tensors), layout.places, strict=True)
            self._holdings.add(str(order.path), buffer.view, here)
            self._events.put(Pulled(ticket, neighbour, haul.pull.num_bytes))

        self._rebuilding[ticket] = haul.order
        came = haul.order.manifest, haul.buffer.view
        self._rebuilder.begin(ticket, order, *came, buffer.view, tell=done)

    def _checked(self, line: Line, haul: Haul, verdicts: Verdicts) -> None:
        for tensor, is_good in verdicts:
            if is_good:
                haul.good.add(tensor)
            elif tensor in haul.held:
                self._holdings.forget(haul.order.manifest.tensors[tensor].digest)
            self._carry_out(line, haul, haul.pull.verified(tensor=tensor, is_good=is_good))

    def _end(self, line: Line, haul: Haul) -> None:
        """What has its digest stays: another pull, of whomever, need not fetch it again."""
        line.hauls.remove(haul)
        haul.checker.close()
        places, tensors = haul.pull.layout.places, haul.order.manifest.tensors
        good = [(tensors[number].digest, places[number]) for number in haul.good]
        self._holdings.add(str(haul.order.path), haul.buffer.view, good)


def _covered(place: Place, spans: Iterable[Place]) -> bool:
    """It is fetched all the same, because too little lies between its neighbours."""
    return any(span.start <= place.start and place.end <= span.end for span in spans)

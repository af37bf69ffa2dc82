"""Requests and pieces: what the server's thread owns, and what it does in one turn.

Knows the listener, the mapped bodies, and the two machines that decide. No loop, no thread.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from peer.dataplane.bodies import ServedBody
from peer.dataplane.events import Event, Misbehaved, PeerDone, Served
from peer.dataplane.inbox import Inbox
from peer.work import SnapshotRef
from protocol.errors import RemoteProtocolError
from protocol.ids import PeerId
from protocol.transport.base import Arrival, Listener, Sent
from protocol.wire import shelf as shelves
from protocol.wire.codec import PEER, decode_document
from protocol.wire.layout import Layout
from protocol.wire.link_effects import WakeAt
from protocol.wire.messages import (
    Cancel,
    Credit,
    Data,
    Epoch,
    Get,
    Part,
    PeerMessage,
    SignedView,
    SnapshotManifest,
)
from protocol.wire.serving import Serving
from protocol.wire.shelf import SNAPSHOTS_KEPT, Shelf, Status

__all__ = ["Desk", "Names"]

ARRIVALS_PER_TURN = 64  # so that a flood of requests does not stop the pieces
PIECES_PER_TURN = 4  # nor pieces the requests
MUTE_S = 10.0  # a peer that broke the protocol is not heard
TELL_SERVED_EVERY_S = 1.0

Names: TypeAlias = Mapping[bytes, PeerId]  # of every admitted key


class Desk:
    """Orders of the node, then a turn, then orders again: `Server` is the loop."""

    def __init__(
        self,
        listener: Listener,
        *,
        names: Callable[[], Names],
        events: Inbox[Event],
        max_bytes_s: float = math.inf,
    ) -> None:
        self._listener = listener
        self._names = names
        self._events = events
        self._shelf: Shelf | None = None
        self._view: tuple[Epoch, SignedView] | None = None
        self._max_bytes_s = max_bytes_s
        self._serving = Serving(max_bytes_s=max_bytes_s)
        self._kept: dict[Part, list[bytes]] = {}  # digests of what is offered, oldest first
        self._bodies: dict[bytes, ServedBody] = {}  # by digest, oldest first
        self._muted: dict[bytes, float] = {}  # until when, by key
        self._served: dict[PeerId, int] = {}
        self._tell_served_at_s = 0.0
        self._shelf_due_s: float | None = None
        self._is_busy = False  # more may have arrived than one turn took

    @property
    def is_open(self) -> bool:
        return self._shelf is not None

    @property
    def due_s(self) -> float | None:
        """When `turn` has something to do though nothing arrives."""
        if self._is_busy:
            return 0.0
        told_s = self._tell_served_at_s if self._served else None
        times = (self._shelf_due_s, self._serving.due_s, told_s)
        return min((at_s for at_s in times if at_s is not None), default=None)

    def open(self, shelf: Shelf) -> None:
        self._shelf = shelf
        if self._view is not None:
            shelf.view(*self._view)

    def view(self, epoch: Epoch, signed: SignedView) -> None:
        self._view = epoch, signed
        if self._shelf is not None:
            self._shelf.view(epoch, signed)

    def status(self, status: Status) -> None:
        if self._shelf is not None:
            self._shelf.status(status)

    def publish(self, snapshot: SnapshotRef, round_no: int, kept: int = SNAPSHOTS_KEPT) -> None:
        if self._shelf is None:
            return  # said goodbye already
        manifest = decode_document(SnapshotManifest, snapshot.manifest)
        layout = Layout.of(manifest.tensors)
        body = ServedBody(Path(snapshot.path), offset=snapshot.offset, num_bytes=layout.body_bytes)
        self._bodies[snapshot.digest] = body
        self._serving.publish(snapshot.digest, body.num_bytes)
        offered = self._kept.setdefault(manifest.part, [])
        offered.append(snapshot.digest)
        for old in offered[:-kept]:
            self._serving.withdraw(old)
        del offered[:-kept]
        part, base = manifest.part, manifest.base
        self._deliver(self._shelf.publish(round_no, snapshot.manifest, part, base, kept=kept))

    def forget(self, lost: Names) -> None:
        """Be done with members that were revoked: not one piece more, and their lines are cut."""
        for key, name in lost.items():
            self._drop(key, name)
            self._listener.hang_up(key)

    def _drop(self, key: bytes, name: PeerId) -> None:
        self._serving.forget(key)
        if self._shelf is not None:
            self._shelf.forget(name)

    def leave(self, reason: str) -> None:
        if self._shelf is not None:
            self._deliver(self._shelf.leave(reason))
        self._shelf = self._shelf_due_s = None
        self._serving = Serving(max_bytes_s=self._max_bytes_s)
        self._bodies.clear()
        self._kept.clear()
        self._is_busy = False

    def turn(self, now_s: float) -> None:
        if self._shelf is None:
            return
        self._is_busy = False
        for number in range(ARRIVALS_PER_TURN):
            arrival = self._listener.receive()
            if arrival is None:
                break
            self._take(arrival, now_s)
            self._is_busy = number == ARRIVALS_PER_TURN - 1
        self._send_pieces(now_s)
        self._serving.wake(now_s)
        if self._shelf_due_s is not None and now_s >= self._shelf_due_s:
            self._shelf_due_s = None
            self._deliver(self._shelf.wake(now_s))
        if self._served and now_s >= self._tell_served_at_s:
            self.tell_served()

    def tell_served(self) -> None:
        for peer, num_bytes in self._served.items():
            self._events.put(Served(peer, num_bytes))
        self._served.clear()

    def _take(self, arrival: Arrival, now_s: float) -> None:
        peer = self._names().get(arrival.key)
        if peer is None or self._shelf is None or now_s < self._muted.get(arrival.key, now_s):
            return
        try:
            if arrival.payload is not None:
                raise RemoteProtocolError("a request with a payload")
            message = PEER.decode(arrival.header)
            if isinstance(message, Get | Credit | Cancel):
                answer = self._serving.receive(arrival.route, arrival.key, message, now_s)
                if answer is not None:
                    self._send(arrival.route, answer)
            else:
                self._deliver(self._shelf.receive(arrival.route, peer, message, now_s))
        except RemoteProtocolError as error:
            self._muted[arrival.key] = now_s + MUTE_S
            self._drop(arrival.key, peer)
            self._events.put(Misbehaved(peer, str(error)))

    def _send_pieces(self, now_s: float) -> None:
        for _ in range(PIECES_PER_TURN):
            piece = self._serving.next_piece(now_s)
            if piece is None:
                break
            payload = self._bodies[piece.digest].piece(piece.offset, piece.num_bytes)
            header = PEER.encode(Data(piece.xid, piece.offset))
            match self._listener.send(piece.route, header, payload):
                case Sent.YES:
                    self._count(piece.key, piece.num_bytes, now_s)
                    self._serving.sent(piece, now_s)
                case Sent.FULL:
                    self._serving.full(piece, now_s)
                case Sent.GONE:
                    self._gone(piece.route)
        for old in [digest for digest in self._bodies if not self._serving.uses(digest)]:
            del self._bodies[old]

    def _count(self, key: bytes, num_bytes: int, now_s: float) -> None:
        peer = self._names().get(key)
        if peer is None:
            return
        if not self._served:
            self._tell_served_at_s = now_s + TELL_SERVED_EVERY_S
        self._served[peer] = self._served.get(peer, 0) + num_bytes

    def _deliver(self, effects: tuple[shelves.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case shelves.Reply(route, message):
                    self._send(route, message)
                case shelves.PeerDone(peer):
                    self._events.put(PeerDone(peer))
                case WakeAt(at_s):
                    self._shelf_due_s = at_s

    def _send(self, route: bytes, message: PeerMessage) -> None:
        if self._listener.send(route, PEER.encode(message)) is Sent.GONE:
            self._gone(route)

    def _gone(self, route: bytes) -> None:
        self._serving.gone(route)
        if self._shelf is not None:
            self._shelf.gone(route)

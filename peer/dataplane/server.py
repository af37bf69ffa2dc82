"""The thread that answers other peers: questions and pieces, at once, whatever the node does.

It owns the listener. Decisions are those of `Shelf` and `Serving`; their shell is this and desk.py.
"""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing
from threading import Thread
from typing import Self

from peer.dataplane.desk import Desk, Names
from peer.dataplane.events import Crashed, Event, ShutOut
from peer.dataplane.inbox import Inbox
from peer.work import SnapshotRef
from protocol.clock import Clock, MonotonicClock
from protocol.ids import PeerId
from protocol.transport.base import Listener, Transport
from protocol.wire.messages import Epoch, SignedView
from protocol.wire.shelf import SNAPSHOTS_KEPT, Shelf, Status

__all__ = ["Server"]


class Server:
    """Serves from entry to exit. Every method may be called from the node's thread."""

    def __init__(
        self,
        transport: Transport,
        *,
        bind: str,
        name: PeerId,
        sign_secret: bytes,
        events: Inbox[Event],
        max_bytes_s: float = math.inf,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; entering binds.

        Args:
            transport: with this node's keys.
            bind: e.g. tcp://0.0.0.0:0.
            name: ours.
            sign_secret: Ed25519, to vouch for what is served; it never leaves this process.
            events: where the node is told.
            max_bytes_s: of parameters, at most so many a second to any one node.
            clock: the machine's own, unless given.
        """
        self._transport = transport
        self._bind = bind
        self._name = name
        self._sign_secret = sign_secret
        self._events = events
        self._max_bytes_s = max_bytes_s
        self._clock = clock or MonotonicClock()
        self._members: Names = {}
        self._refused: frozenset[bytes] = frozenset()
        self._names: Names = {}  # who is heard: replaced, never changed: three threads read it
        self._orders: Inbox[Callable[[Desk], None]] = Inbox(transport.wake())
        self._bound: Future[str] = Future()
        self._is_stopping = False
        self._thread = Thread(target=self._run, name="server", daemon=False)

    def __enter__(self) -> Self:
        """Bind and begin.

        Raises:
            AddressError: the address is in use or not of this machine.
        """
        self._thread.start()
        try:
            self._bound.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._orders.wake.set()
        self._thread.join()

    @property
    def address(self) -> str:
        """Where it is bound, with the port that the system chose."""
        return self._bound.result()

    def open(self, run: bytes, schema: bytes) -> None:
        """Answer the members of this run from now on; those who came before waited unheard."""
        shelf = Shelf(run=run, name=self._name, schema=schema, sign_secret=self._sign_secret)
        self._orders.put(lambda desk: desk.open(shelf))

    def view(self, epoch: Epoch, signed: SignedView) -> None:
        """Pass this view on to whoever has an older one."""
        self._orders.put(lambda desk: desk.view(epoch, signed))

    def members(self, names: Names) -> None:
        """Who may connect: every admitted key that is not revoked, and its name."""
        self._members = dict(names)
        self._open_to_them()

    def refuse(self, keys: Iterable[bytes]) -> None:
        """Hear these keys no more, members or not, for as long as this process lives."""
        self._refused |= frozenset(keys)
        self._open_to_them()

    def _open_to_them(self) -> None:
        heard = {key: name for key, name in self._members.items() if key not in self._refused}
        before, self._names = self._names, heard
        if lost := {key: name for key, name in before.items() if self._names.get(key) != name}:
            self._orders.put(lambda desk: desk.forget(lost))

    def status(self, status: Status) -> None:
        """From now on, tell this to those who wait."""
        self._orders.put(lambda desk: desk.status(status))

    def publish(self, snapshot: SnapshotRef, round_no: int, kept: int = SNAPSHOTS_KEPT) -> None:
        """Serve this snapshot, and of its part those before it, so many altogether."""
        self._orders.put(lambda desk: desk.publish(snapshot, round_no, kept))

    def leave(self, reason: str) -> None:
        """Say goodbye to everyone and answer nobody any more."""
        self._orders.put(lambda desk: desk.leave(reason))

    def _admits(self, key: bytes) -> bool:
        return key in self._names

    def _offended(self, key: bytes | None, reason: str) -> None:
        """Somebody filled our memory: it is out, as far as this node can say."""
        name = self._names.get(key) if key is not None else None
        if key is not None and name is not None:
            self._events.put(ShutOut(name, key, reason))

    def _run(self) -> None:
        try:
            listener = self._transport.listen(
                self._bind, admits=self._admits, offended=self._offended
            )
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._bound.set_exception(error)
            return
        try:
            with closing(listener):
                desk = Desk(
                    listener,
                    names=lambda: self._names,
                    events=self._events,
                    max_bytes_s=self._max_bytes_s,
                )
                self._bound.set_result(listener.address)
                self._serve(listener, desk)
        except BaseException as error:  # noqa: BLE001 - told to the node, which ends
            self._events.put(Crashed("server", error))

    def _serve(self, listener: Listener, desk: "Desk") -> None:
        poller = self._transport.poller()
        poller.add(self._orders.wake)
        while not self._is_stopping:
            if desk.is_open:
                poller.add(listener)
            else:
                poller.discard(listener)
            due_s = desk.due_s
            poller.poll(None if due_s is None else max(0.0, due_s - self._clock.now_s()))
            for order in self._orders.drain():
                order(desk)
            desk.turn(self._clock.now_s())
        desk.tell_served()

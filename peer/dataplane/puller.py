"""The thread that fetches neighbours' snapshots into files, checking them as they come.

It owns one bulk caller for each neighbour, kept open between rounds, and a few threads that hash.
Decisions are those of `Pull`; this and hauls.py are its shell.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Self

from peer.dataplane.checking import Telling, Workers
from peer.dataplane.events import Crashed, Event
from peer.dataplane.haul import PullOrder
from peer.dataplane.hauls import Hauls
from peer.dataplane.inbox import Inbox
from peer.work import SnapshotRef
from protocol.clock import Clock, MonotonicClock
from protocol.ids import PeerId
from protocol.transport.base import Transport

__all__ = ["PullOrder", "Puller"]

HASHING_THREADS = 2  # 2 to 4 GB/s each


class Puller:
    """Pulls from entry to exit. Every method may be called from the node's thread."""

    def __init__(
        self,
        transport: Transport,
        *,
        events: Inbox[Event],
        clock: Clock | None = None,
    ) -> None:
        """Prepare; entering begins.

        Args:
            transport: with this node's keys.
            events: where the node is told.
            clock: the machine's own, unless given.
        """
        self._transport = transport
        self._events = events
        self._clock = clock or MonotonicClock()
        self._orders: Inbox[Callable[[Hauls], None]] = Inbox(transport.wake())
        self._is_stopping = False
        self._thread = Thread(target=self._run, name="puller", daemon=False)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._orders.wake.set()
        self._thread.join()

    def pull(self, order: PullOrder) -> None:
        """Fetch a snapshot; Pulled or PullFailed follows, unless it is cancelled."""
        self._orders.put(lambda hauls: hauls.order(order, self._clock.now_s()))

    def hold(self, snapshot: SnapshotRef) -> None:
        """This node has these tensors, having published them: fetch none of them."""
        self._orders.put(lambda hauls: hauls.hold(snapshot))

    def cancel(self, ticket: int) -> None:
        """Stop a pull. Its end may be on its way already: an event with this ticket means less."""
        self._orders.put(lambda hauls: hauls.cancel(ticket, self._clock.now_s()))

    def hang_up(self, neighbour: PeerId) -> None:
        """Close the connection to one that is no neighbour any more."""
        now_s = self._clock.now_s
        self._orders.put(lambda hauls: hauls.hang_up(neighbour, now_s(), reason="hung up"))

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(HASHING_THREADS, thread_name_prefix="hash") as hashers:
                self._pull(Telling(hashers, lambda error: self._events.put(Crashed("hash", error))))
        except BaseException as error:  # noqa: BLE001 - told to the node, which ends
            self._events.put(Crashed("puller", error))

    def _pull(self, hashers: Workers) -> None:
        poller = self._transport.poller()
        poller.add(self._orders.wake)
        hauls = Hauls(
            self._transport,
            poller,
            hashers=hashers,
            events=self._events,
            call_back=lambda function: self._orders.put(lambda _hauls: function()),
        )
        try:
            while not self._is_stopping:
                due_s = hauls.due_s
                ready = poller.poll(
                    None if due_s is None else max(0.0, due_s - self._clock.now_s())
                )
                for order in self._orders.drain():
                    order(hauls)
                hauls.turn(ready, self._clock.now_s())
        finally:
            hauls.close()

"""The shell of the directory: one thread that moves bytes, keeps time and writes the journal.

It decides nothing. What must be written down is written before any answer of the same batch leaves;
when the disk refuses, the answers are dropped and their askers ask again.
"""

import logging
from collections.abc import Callable

from coordinator.book import Book
from coordinator.directory import Directory, Effect, Reply, Save, WakeAt
from coordinator.door import Door
from coordinator.journal import Journal
from protocol.clock import Clock
from protocol.transport.base import Poller, Sent, Wake
from protocol.wire.codec import COORDINATOR
from protocol.wire.messages import CoordinatorMessage, View

__all__ = ["Runtime"]

_log = logging.getLogger(__name__)

BATCH_MESSAGES = 256  # that share one write of the journal
RETRY_SAVE_S = 2.0
# A signal that comes just before a wait begins is dealt with when that ends: no later than this.
SIGNALS_S = 0.5
SHOW_EVERY_S = 1.0  # rounds and the like; a change of members is shown at once


class Runtime:
    def __init__(
        self,
        *,
        directory: Directory,
        book: Book,
        journal: Journal,
        door: Door,
        poller: Poller,
        stop: Wake,
        clock: Clock,
        show: Callable[[View], None],
    ) -> None:
        """Put the parts together.

        Args:
            directory: over `book`.
            book: what `journal` writes.
            journal: where.
            door: bound; its wake is polled here too.
            poller: used by this shell alone.
            stop: ends `run` when set, from a signal handler too.
            clock: of the machine.
            show: is given the view whenever it is worth a look.
        """
        self._directory = directory
        self._book = book
        self._journal = journal
        self._listener = door.listener
        self._offences = door.offences
        self._poller = poller
        self._stop = stop
        self._shut_out: set[bytes] = set()  # by the transport, in this process
        self._clock = clock
        self._show = show
        self._wake_at_s: float | None = clock.now_s()
        self._is_unsaved = False
        self._shown_epoch = directory.epoch
        self._shown_at_s = float("-inf")
        self._encoded: tuple[CoordinatorMessage | None, bytes] = (None, b"")
        poller.add(door.listener)
        poller.add(stop)
        poller.add(door.offences.wake)

    def run(self) -> None:
        """Serve until `stop` is set."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Wait for something, deal with it, and say whether to go on."""
        now_s = self._clock.now_s()
        due_s = now_s + SIGNALS_S if self._wake_at_s is None else self._wake_at_s
        wait_s = min(max(0.0, due_s - now_s), SIGNALS_S)
        if self._stop in self._poller.poll(wait_s):
            return False
        self._carry_out(self._happened())
        self._display()
        return True

    def _happened(self) -> list[Effect]:
        """Feed the directory what has arrived, and the time if it asked for it."""
        effects: list[Effect] = []
        for _ in range(BATCH_MESSAGES):
            arrival = self._listener.receive()
            if arrival is None:
                break
            effects += self._directory.receive(
                arrival.route,
                arrival.key,
                arrival.header,
                self._clock.now_s(),
                has_payload=arrival.payload is not None,
            )
        now_s = self._clock.now_s()
        for offence in self._offences.take():
            self._shut_out.add(offence.key)
            effects += self._directory.offended(offence, now_s)
        if self._wake_at_s is not None and now_s >= self._wake_at_s:
            self._wake_at_s = None
            effects += self._directory.wake(now_s)
        return effects

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case WakeAt(at_s):
                    self._wake_at_s = at_s
                case Save():
                    self._is_unsaved = True
                case Reply():
                    pass
        if self._is_unsaved and not self._save():
            return
        self._pardon()
        for effect in effects:
            if isinstance(effect, Reply):
                self._send(effect)

    def _pardon(self) -> None:
        """Hear again whom the book refuses no more: its operator has lifted that, or it is full."""
        for key in self._shut_out - self._book.refused.keys():
            self._shut_out.discard(key)
            self._listener.pardon(key)

    def _save(self) -> bool:
        try:
            self._journal.save(self._book)
        except OSError as error:
            _log.error("journal not written, nobody is answered: %s", error)
            self._wake_at_s = self._clock.now_s() + RETRY_SAVE_S
            return False
        self._is_unsaved = False
        return True

    def _send(self, reply: Reply) -> None:
        message, header = self._encoded
        if message is not reply.message:  # the same view goes to many
            header = COORDINATOR.encode(reply.message)
            self._encoded = (reply.message, header)
        sent = self._listener.send(reply.route, header)
        if sent is Sent.GONE:
            self._directory.gone(reply.route)
        elif sent is Sent.FULL:
            _log.info("a node does not read, its message is dropped route=%s", reply.route.hex())

    def _display(self) -> None:
        now_s = self._clock.now_s()
        if self._shown_epoch != self._directory.epoch or now_s >= self._shown_at_s + SHOW_EVERY_S:
            self._shown_epoch, self._shown_at_s = self._directory.epoch, now_s
            self._show(self._directory.view)

"""The journal's thread: writing and syncing hold up neither the training nor the network."""

from queue import SimpleQueue
from threading import Thread
from typing import Self

from peer.dataplane.events import Crashed, Event, Journalled
from peer.dataplane.inbox import Inbox
from peer.effects import Keep
from peer.journal import Journal
from protocol.wire.messages import SignedView

__all__ = ["Scribe"]


class Scribe:
    """Writes what it is given, in order, and tells each time that it is there; use in a `with`."""

    def __init__(self, journal: Journal, *, events: Inbox[Event]) -> None:
        self._journal = journal
        self._events = events
        self._queue: SimpleQueue[Keep | SignedView | None] = SimpleQueue()
        self._newest: SignedView | None = None
        self._thread = Thread(target=self._run, name="journal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        self._journal.close()

    def keep(self, keep: Keep) -> None:
        """Write this after what was given before; `Journalled` tells when it is there."""
        self._queue.put(keep)

    def view(self, signed: SignedView) -> None:
        """Keep this view, unless it is followed by a newer one before its turn comes."""
        self._newest = signed
        self._queue.put(signed)

    def finish(self) -> None:
        """Wait until all is written; nothing is taken after that."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        try:
            while (keep := self._queue.get()) is not None:
                if isinstance(keep, SignedView):
                    if keep is self._newest:
                        self._journal.view(keep)
                    continue
                self._events.put(Journalled(keep, self._journal.write(keep.entry)))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the node must hear of it
            self._events.put(Crashed("journal", error))

"""The signed view: its epoch, its bytes, and when it is due to be sent around.

A view goes to everybody at once when it changes, but many changes in a row share one sending: with
thousands of members a view is large, and everybody gets it.
"""

from coordinator.book import Book
from protocol.wire.messages import Epoch, SignedView, View, is_newer
from protocol.wire.signing import seal_view

__all__ = ["Bulletin"]

PUSH_BYTES_PER_S = 20e6  # what pushed views may take of the link, averaged


class Bulletin:
    def __init__(self, book: Book, *, sign_secret: bytes) -> None:
        """Open with counter 0 of the book's incarnation; nothing is due."""
        self._book = book
        self._sign_secret = sign_secret
        self._counter = 0
        if is_newer(book.told, book.known):
            book.known = book.told
        self._sealed: SignedView | None = None  # of the present counter
        self._free_at_s = float("-inf")  # when the link has taken the last sending
        self._due_at_s: float | None = None

    @property
    def epoch(self) -> Epoch:
        return Epoch(self._book.incarnation, self._counter)

    @property
    def view(self) -> View:
        return self._book.view(self._counter)

    @property
    def due_at_s(self) -> float | None:
        """When `sent` is to be called, or None when nothing has changed."""
        return self._due_at_s

    def changed(self, now_s: float) -> None:
        """Count a change of the book."""
        self._counter += 1
        self._book.told = self.epoch
        self._sealed = None
        if self._due_at_s is None:
            self._due_at_s = max(now_s, self._free_at_s)

    def sealed(self) -> SignedView:
        if self._sealed is None:
            self._sealed = seal_view(self.view, self._sign_secret)
        return self._sealed

    def sent(self, copies: int, now_s: float) -> None:
        """Note that the present view went out to so many."""
        self._due_at_s = None
        self._free_at_s = now_s + copies * len(self.sealed().body) / PUSH_BYTES_PER_S

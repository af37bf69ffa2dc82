"""A book from the views that members hold: what to do when the journal is lost, or is an old one.

A view that this coordinator signed says who was a member, who was revoked, and what was settled. It
has no tokens (they are secret) and no processes: those are learnt anew.
"""

from dataclasses import dataclass, field

from coordinator.book import UNKNOWN_INSTANCE, Book, Entry
from protocol.errors import ConfigError, RemoteProtocolError
from protocol.ids import RunId, peer_id
from protocol.manifest import Manifest
from protocol.wire.messages import (
    MAX_MANIFEST_BYTES,
    Epoch,
    Member,
    SignedView,
    View,
    ViewPart,
    is_newer,
)

__all__ = ["Showing", "knows", "merge"]


@dataclass(slots=True)
class Showing:
    """A view on its way, in parts that are asked for one after another."""

    body: bytearray = field(default_factory=bytearray)
    total: int = 0

    def take(self, part: ViewPart) -> SignedView | None:
        """Add the part that was asked for; the view when it is whole.

        Raises:
            RemoteProtocolError: it is another part, or of another view.
        """
        self.total = self.total or part.total
        fits = part.offset == len(self.body) and part.total == self.total <= MAX_MANIFEST_BYTES
        if not fits or part.offset + len(part.chunk) > self.total:
            raise RemoteProtocolError(f"a part at {part.offset} of {part.total} that does not fit")
        self.body += part.chunk
        if len(self.body) < self.total:
            return None
        return SignedView(bytes(self.body), part.signature)


def knows(book: Book, epoch: Epoch, seen: Epoch) -> bool:
    """Whether the book has all that a view of the epoch `seen` could tell.

    Args:
        book: of this start of the coordinator.
        epoch: of its view now.
        seen: the newest that a node has.
    """
    return not is_newer(seen, book.known if seen.incarnation < epoch.incarnation else epoch)


def merge(book: Book, view: View) -> None:
    """Take over a view that this coordinator signed, newer than what the book has of that start.

    What the book has stands, for it may be of this start. But who is revoked in either stays so.

    Raises:
        ConfigError: it is of another run, and this one has begun.
    """
    if view.run != book.run and book.entries:
        raise ConfigError(f"this coordinator leads another run now: {book.run_name}")
    if not book.entries:
        book.run, book.run_name, book.founders = RunId(view.run), view.run_name, view.founders
    if not book.founding:
        book.founding = tuple(peer_id(name) for name in view.founding)
    if view.settled and not book.settled:
        book.settled, book.options = True, Manifest.from_options(view.options)
    if not book.schema:
        book.schema, book.init = view.schema, view.init
    for member in view.members:
        _take(book, member)
    book.known = view.epoch if is_newer(view.epoch, book.known) else book.known
    book.incarnation = max(book.incarnation, view.epoch.incarnation + 1)


def _take(book: Book, member: Member) -> None:
    name = peer_id(member.name)
    entry = book.entries.get(name)
    if entry is not None and entry.instance != UNKNOWN_INSTANCE:
        entry.revoked |= member.state == "revoked"
        return
    if entry is None:
        entry = book.entries[name] = Entry(
            name=name,
            role=member.role,
            address=member.address,
            curve_key=member.curve_key,
            sign_key=member.sign_key,
            instance=UNKNOWN_INSTANCE,
            round_no=member.round_no,
        )
    entry.address = member.address
    entry.revoked |= member.state == "revoked"
    entry.left = member.state == "left"
    entry.lost = member.state == "lost"
    entry.ready = member.state in {"ready", "lost"}

"""On which connection each member speaks: one at a time, and at most one for each member."""

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.book import Entry
from coordinator.limits import Bounded
from protocol.ids import PeerId
from protocol.wire.messages import Epoch

__all__ = ["Session", "Sessions"]


@dataclass(slots=True, eq=False)
class Session:
    entry: Entry
    route: bytes
    seen: Epoch | None = None  # of the newest view that was sent on it


class Sessions:
    def __init__(self, *, remembered: int) -> None:
        """Start without any.

        Args:
            remembered: connections of superseded processes to keep in mind.
        """
        self._by_route: dict[bytes, Session] = {}
        self._by_name: dict[PeerId, Session] = {}
        self._displaced: Bounded[bytes, PeerId] = Bounded(remembered)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._by_route.values()))

    def __len__(self) -> int:
        return len(self._by_route)

    def at(self, route: bytes) -> Session | None:
        return self._by_route.get(route)

    def of(self, name: PeerId) -> Session | None:
        return self._by_name.get(name)

    def open(self, entry: Entry, route: bytes) -> Session:
        """Make this connection the one that the member speaks on."""
        if entry.name in self._by_name:
            self.close(self._by_name[entry.name].route)
        self.close(route)
        session = Session(entry, route)
        self._by_route[route] = self._by_name[entry.name] = session
        return session

    def close(self, route: bytes) -> None:
        session = self._by_route.pop(route, None)
        if session is not None:
            del self._by_name[session.entry.name]

    def displace(self, name: PeerId) -> None:
        """Close a member's connection, to tell its process when it next speaks."""
        session = self._by_name.get(name)
        if session is not None:
            self.close(session.route)
            self._displaced[session.route] = name

    def displaced_at(self, route: bytes) -> PeerId | None:
        """Name the member whose superseded process speaks there, if that is so."""
        return self._displaced.get(route)

    @property
    def num_displaced(self) -> int:
        return len(self._displaced)

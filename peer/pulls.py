"""Tickets of the pulls under way. Knows no socket; the data plane moves the bytes."""

from peer.work import SnapshotRef

__all__ = ["Pulls"]


class Pulls:
    """Tickets of the pulls under way: what each will be, and how much of it has been told."""

    def __init__(self) -> None:
        self._next = 0
        self._snapshots: dict[int, SnapshotRef] = {}
        self._told: dict[int, int] = {}

    def add(self, snapshot: SnapshotRef) -> int:
        self._next += 1
        self._snapshots[self._next] = snapshot
        self._told[self._next] = 0
        return self._next

    def more(self, ticket: int, num_bytes: int) -> int:
        """How many bytes are new, of `num_bytes` that are in."""
        if ticket not in self._told:
            return 0
        new = max(0, num_bytes - self._told[ticket])
        self._told[ticket] = max(num_bytes, self._told[ticket])
        return new

    def take(self, ticket: int) -> SnapshotRef | None:
        self._told.pop(ticket, None)
        return self._snapshots.pop(ticket, None)

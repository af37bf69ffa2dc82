"""Tickets of the pulls under way. Knows no socket; the data plane moves the bytes."""

from dataclasses import dataclass

from peer.work import SnapshotRef

__all__ = ["Pulls"]


@dataclass(slots=True)
class _Pull:
    snapshot: SnapshotRef  # what it will be
    told_bytes: int = 0  # of which the machine has heard


class Pulls:
    """What each ticket stands for, and how much of it has been told."""

    def __init__(self) -> None:
        self._next = 0
        self._pulls: dict[int, _Pull] = {}

    def add(self, snapshot: SnapshotRef) -> int:
        self._next += 1
        self._pulls[self._next] = _Pull(snapshot)
        return self._next

    def more(self, ticket: int, num_bytes: int) -> int:
        """How many bytes are new, of `num_bytes` that are in; 0 for a ticket that is closed."""
        pull = self._pulls.get(ticket)
        if pull is None or num_bytes <= pull.told_bytes:
            return 0
        new = num_bytes - pull.told_bytes
        pull.told_bytes = num_bytes
        return new

    def finish(self, ticket: int, num_bytes: int) -> tuple[int, SnapshotRef | None]:
        """Close a ticket: the bytes not told yet of all that came, and what it stood for.

        Nothing if it was closed already.
        """
        pull = self._pulls.pop(ticket, None)
        return (num_bytes - pull.told_bytes, pull.snapshot) if pull is not None else (0, None)

    def drop(self, ticket: int) -> None:
        """Close a ticket that came to nothing."""
        self._pulls.pop(ticket, None)

"""Tickets of the pulls under way. Knows no socket; the data plane moves the bytes."""

from dataclasses import dataclass, replace
from pathlib import Path

from peer.dataplane.haul import PullOrder
from peer.dataplane.rebuilding import Rebuild
from peer.effects import Fetch
from peer.work import SnapshotRef
from protocol.wire.codec import encode_document

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

    def order(self, fetch: Fetch, inbox: Path, address: str, key: bytes) -> PullOrder:
        """A new ticket: what the puller is to do, whole or by a step from what is here.

        An earlier ticket of the same buffer is closed: the puller writes no longer for it.

        Args:
            fetch: as the node says.
            inbox: folder of the receive buffers.
            address: the neighbour's.
            key: the one that its server has.
        """
        path = inbox / f"{fetch.neighbour}.{fetch.slot}.body"
        snapshot = SnapshotRef(encode_document(fetch.manifest), fetch.digest, str(path), 0)
        for old in [t for t, pull in self._pulls.items() if pull.snapshot.path == str(path)]:
            del self._pulls[old]
        self._next += 1
        self._pulls[self._next] = _Pull(snapshot)
        order = PullOrder(
            ticket=self._next,
            neighbour=fetch.neighbour,
            address=address,
            server_key=key,
            manifest=fetch.manifest,
            digest=fetch.digest,
            path=path,
        )
        if (onward := fetch.onward) is None:
            return order
        return replace(
            order,
            manifest=onward.step.manifest,
            digest=onward.step.digest,
            path=path.with_suffix(".step"),
            rebuild=Rebuild(base=onward.base, manifest=fetch.manifest, path=path),
        )

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

    def drop(self, ticket: int) -> bool:
        """Close a ticket that came to nothing; False if it was closed already."""
        return self._pulls.pop(ticket, None) is not None

"""What is said of a pull: its order, the connection that it shares, where its pieces belong."""

from dataclasses import dataclass, field
from pathlib import Path

from peer.dataplane.bodies import ReceiveBuffer
from peer.dataplane.checking import Checker
from peer.dataplane.rebuilding import Rebuild
from protocol.errors import RemoteProtocolError
from protocol.ids import PeerId
from protocol.transport.base import Caller
from protocol.wire.codec import PEER
from protocol.wire.messages import Data, SnapshotManifest
from protocol.wire.pulling import Pull

__all__ = ["Haul", "Line", "Placing", "PullOrder", "Wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOrder:
    """Fetch one snapshot."""

    ticket: int  # never used before
    neighbour: PeerId
    address: str
    server_key: bytes
    manifest: SnapshotManifest  # of the run's schema
    digest: bytes  # the snapshot's name
    path: Path  # where its body goes; overwritten, resized, reused between rounds
    rebuild: Rebuild | None = None  # the snapshot is a step, and this what it leads to

    @property
    def files(self) -> frozenset[Path]:
        """Those that it writes."""
        return frozenset((self.path,) if self.rebuild is None else (self.path, self.rebuild.path))


@dataclass(slots=True, eq=False)
class Haul:
    """One pull, the buffer that it fills, and when its progress was last told."""

    order: PullOrder
    pull: Pull
    buffer: ReceiveBuffer
    told_at_s: float
    checker: Checker = field(init=False)
    good: set[int] = field(default_factory=set)  # tensors that have their digests
    held: frozenset[int] = frozenset()  # tensors that were not asked for


@dataclass(slots=True, eq=False)
class Line:
    """One neighbour's caller, and the hauls on it."""

    caller: Caller
    where: tuple[str, bytes]  # address and key
    is_connected: bool = False
    hauls: list[Haul] = field(default_factory=list)


class Placing:
    """Where the payloads of one neighbour belong; decodes each header once."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.before = Data(0, 0)  # the payload that came last

    def __call__(self, header: bytes) -> memoryview | None:
        message = PEER.decode(header)
        if not isinstance(message, Data):
            raise RemoteProtocolError(f"a payload after {type(message).__name__}")
        self.before = message
        for haul in self._line.hauls:
            if (where := haul.pull.place(message)) is not None:
                return haul.buffer.view[where.start : where.end]
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """An order for which there was no connection, or no room, yet."""

    order: PullOrder
    line: Line
    until_s: float  # the connection must be there by then

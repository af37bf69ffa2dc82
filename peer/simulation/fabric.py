"""What a simulated peer sees of its world."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from peer.work import SnapshotRef
from protocol.ids import PeerId

if TYPE_CHECKING:
    from peer.simulation.peer_host import PeerHost

__all__ = ["Begin", "Fabric"]

Begin = Callable[[SnapshotRef | None, str], None]  # what the other side serves; else why not


class Fabric(Protocol):
    """Time, and ways to the others."""

    def now_s(self) -> float: ...

    def later(self, delay_s: float, event: Callable[[], None]) -> None: ...

    def when_awake(self, host: "PeerHost", event: Callable[[], None]) -> None:
        """Let it happen at this host once it is not frozen, if it still lives then."""

    def to_coordinator(self, me: PeerId, header: bytes) -> None: ...

    def dial(self, me: PeerId, other: PeerId) -> None: ...

    def opened(self, me: PeerId) -> None:
        """`me` answers from now on."""

    def hang_up(self, me: PeerId, asker: PeerId) -> None:
        """Cut the connection of `asker` to `me`, who does not admit it any more."""

    def began_round(self, me: PeerId, round_no: int) -> None: ...

    def slowness(self, me: PeerId) -> float:
        """How many times longer than usual its trainer takes now."""

    def ask(self, me: PeerId, other: PeerId, header: bytes) -> None:
        """Send on `me`'s own connection to `other`."""

    def answer(self, me: PeerId, asker: PeerId, header: bytes) -> None:
        """Send back on the connection of `asker` to `me`."""

    def pull(self, me: PeerId, other: PeerId, digest: bytes, begin: Begin) -> None:
        """Call `begin` when the request has arrived, with what is served; else with the reason."""

    def carry(
        self,
        me: PeerId,
        other: PeerId,
        num_bytes: int,
        done: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """Bring so many bytes from `other` to `me`, then call one of the two."""

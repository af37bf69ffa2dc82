"""The connections of simulated processes to the coordinator: each has one of its own."""

from coordinator.gate import STRANGERS
from peer.simulation.peer_host import PeerHost
from protocol.ids import PeerId

__all__ = ["Routes", "queue_s"]

_ROOM = 1.02  # so that no rounding makes a newcomer too early


def queue_s(number: int) -> float:
    """How long the n-th of those who start together waits, in seconds.

    A coordinator drops strangers that come too fast, and those would only come again.
    """
    return max(0, number - STRANGERS.burst) / STRANGERS.per_s * _ROOM


class Routes:
    def __init__(self) -> None:
        self._num_opened = 0
        self._hosts: dict[bytes, PeerHost] = {}
        self._newest: dict[PeerId, bytes] = {}

    def open(self, host: PeerHost, now_s: float) -> float:
        """Give a process that starts a connection; that of an earlier one of its name is gone.

        Returns:
            The seconds until it connects.
        """
        self._hosts.pop(self._newest.get(host.me, b""), None)
        self._num_opened += 1
        self._newest[host.me] = route = f"{host.me}/{self._num_opened}".encode()
        self._hosts[route] = host
        return queue_s(self._num_opened) if now_s <= 0.0 else 0.0

    def of(self, name: PeerId) -> bytes:
        """The connection of the newest process of this name."""
        return self._newest[name]

    def holder(self, route: bytes) -> PeerHost | None:
        """Who is at its other end; None when it broke, because that process was killed."""
        host = self._hosts.get(route)
        return None if host is None or host.was_killed else host

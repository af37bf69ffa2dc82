"""What goes wrong in a world, and what is wrong with one in which somebody waits for nothing."""

from collections.abc import Callable
from dataclasses import dataclass

from peer.faults.table import Fault
from peer.simulation.peer_host import PeerHost
from protocol.errors import KinfolkError
from protocol.ids import PeerId

__all__ = ["Script", "Stuck"]


class Stuck(KinfolkError):  # noqa: N818 - what it is, not what was raised
    """Somebody waits for something that nobody will ever do: a bug of a machine."""


@dataclass(frozen=True, slots=True)
class Script:
    """What goes wrong in a world, and what it needs for that."""

    faults: tuple[Fault, ...] = ()
    reborn: Callable[[PeerId], PeerHost] | None = None  # makes a host that starts late, or again
    relays: tuple[PeerId, ...] = ()  # names of all relays

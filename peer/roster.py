"""Who takes part, and whom of them a node needs: a pure function of view, topology, seed and round.

Follows the view at the boundaries of rounds only, never on suspicion: a member whose lease ran out
stays, but for a relay that nobody depends on. Must not know how anybody is doing.
"""

from collections.abc import Iterable

from peer.roles import Exchange, Role
from protocol.ids import PeerId
from protocol.topology import Topology, active, neighbours
from protocol.wire.messages import View

__all__ = ["Roster"]

_READY = frozenset({"ready"})
_TAKING_PART = _READY | {"lost"}
_LEFT = frozenset({"left", "revoked"})


def _names(view: View, role: Role, states: frozenset[str]) -> tuple[PeerId, ...]:
    """Sorted."""
    return tuple(
        sorted(PeerId(m.name) for m in view.members if m.role == role and m.state in states)
    )


class Roster:
    def __init__(
        self,
        *,
        me: PeerId,
        topology: Topology,
        seed: int,
        participation: float,
        exchange: Exchange,
    ) -> None:
        self._me = me
        self._topology = topology
        self._seed = seed
        self._participation = participation
        self._exchange = exchange
        self._view: View | None = None
        self.left: frozenset[PeerId] = frozenset()  # by the coordinator's word, relays too
        self.revoked: frozenset[PeerId] = frozenset()  # some of those
        self.peers: tuple[PeerId, ...] = ()  # of this round, sorted
        self.adjacent: tuple[PeerId, ...] = ()  # in the topology over them, sorted
        self.relay = ""  # who aggregates, where somebody does; empty on a relay itself
        self.is_late = False  # this node joined after the run had begun, and has not caught up

    def see(self, view: View) -> tuple[PeerId, ...]:
        """Take a newer view; the names that have left since the one before, sorted."""
        self._view = view
        before = self.left
        self.left = frozenset(PeerId(m.name) for m in view.members if m.state in _LEFT)
        self.revoked = frozenset(PeerId(m.name) for m in view.members if m.state == "revoked")
        return tuple(sorted(self.left - before))

    def follow(self, *, first: bool) -> None:
        """Let the roster follow the view, at the boundary of a round.

        Args:
            first: this is round 1 of a founder: its roster is that of all founders.
        """
        if self._view is None:
            return
        founding = tuple(PeerId(name) for name in self._view.founding)
        if first and self._me in founding:
            self.peers = tuple(name for name in founding if name not in self.left)
        else:
            self.peers = _names(self._view, Role.PEER, _TAKING_PART)
        if self._exchange.serves:
            self.adjacent = self.peers
            return
        if self._me not in self.peers:
            self.peers = tuple(sorted((*self.peers, self._me)))
        self.adjacent = neighbours(self._topology.graph(self.peers, self._seed), self._me)
        # Peers with a copy of the common model each can do without a relay that may be gone.
        there = _READY if self._exchange is Exchange.COMMON else _TAKING_PART
        self.relay = min(_names(self._view, Role.RELAY, there), default="")

    def next_active(self, round_no: int, last: int) -> int:
        """The first round from `round_no` on in which this node is active; past `last` if none."""
        while round_no <= last and self._me not in self._active(round_no):
            round_no += 1
        return round_no

    def needed(self, round_no: int) -> tuple[PeerId, ...]:
        """Whose part of `round_no` this node needs, sorted."""
        relay = (PeerId(self.relay),) if self.relay else ()
        names: Iterable[PeerId] = self.adjacent
        if self._exchange is Exchange.NONE:
            names = relay = ()
        elif self._exchange is Exchange.RELAY or (self._exchange is Exchange.COMMON and relay):
            names = ()
        active_ones = self._active(round_no)
        return tuple(sorted((*(n for n in names if n in active_ones), *relay)))

    def is_waited_for(self, name: PeerId) -> bool:
        """A relay beside neighbours is welcome when it comes, and no reason to wait."""
        return self._exchange is not Exchange.NEIGHBOURS or name != self.relay

    def _active(self, round_no: int) -> frozenset[PeerId]:
        everybody = frozenset((*self.peers, self._me))
        if self._participation >= 1.0 or self.is_late or self._exchange.serves or round_no < 1:
            return everybody
        return frozenset(active(self.peers, self._participation, self._seed, round_no))

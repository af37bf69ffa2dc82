"""Who takes part, and whom of them a node needs: a pure function of view, topology, seed and round.

Follows the view at the boundaries of rounds only, never on suspicion: a member whose lease ran out
stays, but for a relay that nobody depends on. Must not know how anybody is doing.
"""

from collections.abc import Iterable, Sequence

from peer.census import census_of
from peer.faults.plan import FaultPlan
from peer.roles import Exchange, Role
from protocol.ids import PeerId
from protocol.topology import Topology, active, neighbours
from protocol.wire.messages import View

__all__ = ["Roster"]


class Roster:
    def __init__(
        self,
        *,
        me: PeerId,
        topology: Topology,
        seed: int,
        participation: float,
        exchange: Exchange,
        plan: FaultPlan,
    ) -> None:
        self._me = me
        self._plan = plan
        self._topology = topology
        self._seed = seed
        self._participation = participation
        self._exchange = exchange
        self._view: View | None = None
        self._base: tuple[PeerId, ...] = ()  # as the view has it, at the boundary of this round
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
        census = census_of(view)
        self.left, self.revoked = census.left, census.revoked
        return tuple(sorted(self.left - before))

    def follow(self, round_no: int, last: int, *, first: bool) -> int:
        """Let the roster follow the view, at the boundary of a round.

        Args:
            round_no: the earliest round that this node may play next.
            last: the last one that it may.
            first: this is round 1 of a founder: its roster is that of all founders.

        Returns:
            The first round from `round_no` on in which this node plays; past `last` if none.
        """
        if self._view is None:
            return round_no
        census = census_of(self._view)
        founding = census.founding
        if first and self._me in founding:
            gone = self.left.intersection(founding)
            self._base = tuple(n for n in founding if n not in gone) if gone else founding
        else:
            self._base = census.taking_part
        while round_no <= last and not self._plays(round_no):
            round_no += 1
        self.peers = self._members(round_no)
        self._settle()
        return round_no

    def _plays(self, round_no: int) -> bool:
        relay = self._exchange.serves
        if self._plan.absence(self._me, round_no, is_relay=relay):
            return False
        return self._me in self._active(round_no)

    def _members(self, round_no: int) -> tuple[PeerId, ...]:
        """The peers of a round: as the view has them, but for those whose life the plan says.

        Those are there from their first round to their last, whatever the view says meanwhile: it
        reaches the others at another moment in each run.
        """
        if not self._plan.schedules or self._view is None:
            return self._base
        known = {PeerId(m.name) for m in self._view.members if m.role == Role.PEER}
        scheduled = {name for name in known if self._plan.is_scheduled(name)}
        there = {name for name in scheduled if self._plan.is_member(name, round_no)}
        return tuple(sorted((set(self._base) - scheduled) | there))

    def _settle(self) -> None:
        """Draw the neighbours among the peers of this round."""
        if self._view is None:
            return
        if self._exchange.serves:
            self.adjacent = self.peers
            return
        if self._me not in self.peers:
            self.peers = tuple(sorted((*self.peers, self._me)))
        self.adjacent = neighbours(self._topology.graph(self.peers, self._seed), self._me)
        # Peers with a copy of the common model each can do without a relay that may be gone.
        census = census_of(self._view)
        is_common = self._exchange is Exchange.COMMON
        relays = census.relays_ready if is_common else census.relays_taking_part
        self.relay = min(relays, default="")

    def restore(self, *, peers: Sequence[PeerId], adjacent: Sequence[PeerId], relay: str) -> None:
        """Take the roster of a round that an earlier process was in the middle of."""
        self.peers = self._base = tuple(peers)
        self.adjacent, self.relay = tuple(adjacent), relay

    def needed(self, round_no: int) -> tuple[PeerId, ...]:
        """Whose part of `round_no` this node needs, sorted."""
        relay = (PeerId(self.relay),) if self.relay else ()
        names: Iterable[PeerId] = self.adjacent
        if self._exchange is Exchange.NONE:
            names = relay = ()
        elif self._exchange is Exchange.RELAY or (self._exchange is Exchange.COMMON and relay):
            names = ()
        active_ones = self._active(round_no)
        if round_no >= 1:  # who has just joined has no earlier result
            active_ones = frozenset(n for n in active_ones if self._plan.is_member(n, round_no))
        return tuple(sorted((*(n for n in names if n in active_ones), *relay)))

    @property
    def unawaited(self) -> str:
        """A relay beside neighbours: welcome when it comes, no reason to wait. Empty if none."""
        return self.relay if self._exchange is Exchange.NEIGHBOURS else ""

    def _active(self, round_no: int) -> frozenset[PeerId]:
        members: Sequence[PeerId] = self._members(round_no)
        everybody = frozenset((*members, self._me))
        if self._participation >= 1.0 or self.is_late or self._exchange.serves or round_no < 1:
            return everybody
        return frozenset(active(members, self._participation, self._seed, round_no))

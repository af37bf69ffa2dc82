"""How many of its newest results a node keeps to serve: two, or more where faults make some lag."""

from collections.abc import Iterable

from peer.faults.plan import FaultPlan
from protocol.wire.shelf import SNAPSHOTS_KEPT

__all__ = ["Retention"]


class Retention:
    def __init__(self, plan: FaultPlan, *, me: str, rounds: int) -> None:
        """Begin with what is enough without faults.

        Args:
            plan: of the run.
            me: who keeps.
            rounds: of the run.
        """
        self._plan, self._me, self._rounds = plan, me, rounds
        self._known: set[str] = set()
        self.number = SNAPSHOTS_KEPT  # never falls

    def serves(self, names: Iterable[str]) -> None:
        """These may ask from now on, and whoever joins or leaves by the plan."""
        new = {*names, *self._plan.scheduled} - self._known - {self._me}
        self._known |= new
        self.number = max(self.number, self._plan.results_kept(self._me, new, self._rounds))

    def holds(self, number: int) -> None:
        """So many are there already: an earlier process has kept them."""
        self.number = max(self.number, number)

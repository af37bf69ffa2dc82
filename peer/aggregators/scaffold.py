"""SCAFFOLD, the common half: the mean update, and the variate that peers correct their drift by.

Karimireddy et al., 2020, arXiv 1910.06378, Algorithm 1. Each peer sends how its own variate c_i has
changed, as extras named like the parameters; the common variate moves by their sum over all peers
of the roster, present or not, so that with c_i = 0 at first it is the mean of all c_i. It travels
back in the extras of the start. Peers weigh the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.aggregators.conflict import conflicts
from peer.aggregators.step import evenly, kept, stepped, unmoved
from peer.aggregators.updates import Updates
from peer.options.aggregators import ScaffoldServerOptions
from protocol.ids import PeerId
from protocol.params import State, add, norm, total
from protocol.round import Aggregated, Contribution, Start

__all__ = ["ScaffoldServer"]


@dataclass(frozen=True, slots=True)
class ScaffoldServer:
    options: ScaffoldServerOptions = field(default_factory=ScaffoldServerOptions)

    def init(self, start: Start) -> State:
        return {"variate": unmoved(start)}

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        updates, lr = Updates.of(start, contributions), self.options.lr
        mean = updates.combine(evenly(len(contributions)))
        sent = [{n: c.trained.extras[n] for n in start.params} for c in contributions]
        everyone = {*roster, *(c.sender for c in contributions)}
        variate = add(state["variate"], total(sent), factor=1.0 / len(everyone))
        carried = kept(variate, start)
        moved = stepped(start, mean, contributions, lr=lr, extras=carried)
        notes = {**conflicts(updates, mean, lr), "variate_norm": norm(variate)}
        return Aggregated(moved, notes=notes), {"variate": carried}

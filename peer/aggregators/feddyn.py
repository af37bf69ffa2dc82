"""FedDyn, the common half: the mean of what the peers trained, less what they have drifted by.

Acar et al., 2021, ICLR, Algorithm 1. With N peers in the roster, present or not, the drift is the
sum of all updates so far over N. That is the paper's h over its alpha: alpha cancels here, and only
the peers' half has it. Peers weigh the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.aggregators.conflict import conflicts
from peer.aggregators.step import evenly, kept, stepped, unmoved
from peer.aggregators.updates import Updates
from peer.options.entry import NoOptions
from protocol.ids import PeerId
from protocol.params import State, add, norm
from protocol.round import Aggregated, Contribution, Start

__all__ = ["FedDynServer"]


@dataclass(frozen=True, slots=True)
class FedDynServer:
    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return {"drift": unmoved(start)}

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        updates = Updates.of(start, contributions)
        mean = updates.combine(evenly(len(contributions)))
        everyone = {*roster, *(c.sender for c in contributions)}
        share = len(contributions) / len(everyone)
        drift = add(state["drift"], mean, factor=share)
        direction = add(mean, drift)
        moved = stepped(start, direction, contributions)
        notes = {**conflicts(updates, direction), "drift_norm": norm(drift)}
        return Aggregated(moved, notes=notes), {"drift": kept(drift, start)}

"""FedAvg: the mean of what the peers trained, weighed by training samples.

McMahan et al., 2017, arXiv 1602.05629, Algorithm 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.aggregators.conflict import conflicts
from peer.aggregators.step import shares, stepped
from peer.aggregators.updates import Updates
from peer.options.entry import NoOptions
from protocol.ids import PeerId
from protocol.params import NO_STATE, State
from protocol.round import Aggregated, Contribution, Start

__all__ = ["FedAvgServer"]


@dataclass(frozen=True, slots=True)
class FedAvgServer:
    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        updates = Updates.of(start, contributions)
        mean = updates.combine(shares(contributions))
        moved = stepped(start, mean, contributions)
        return Aggregated(moved, notes=conflicts(updates, mean)), state

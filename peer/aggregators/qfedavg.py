"""q-FedAvg: weigh each peer by its loss to the power q, and step as the curvature allows.

Li et al., 2020, arXiv 1905.10497, Algorithm 2, with L = 1 / lr of the peers. The peers' weights are
uniform, as where they are sampled in proportion to their data. `q = 0` is the uniform mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from peer.aggregators.conflict import conflicts
from peer.aggregators.step import stepped
from peer.aggregators.updates import Updates
from peer.options.aggregators import QFedAvgOptions
from protocol.ids import PeerId
from protocol.params import NO_STATE, State
from protocol.round import Aggregated, Contribution, Start

__all__ = ["QFedAvg"]

_FLOOR_NATS = 1e-10  # added to every loss, as the authors do


@dataclass(frozen=True, slots=True)
class QFedAvg:
    options: QFedAvgOptions = field(default_factory=QFedAvgOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        trained = [c.trained for c in contributions]
        losses = torch.tensor([t.start_loss for t in trained], dtype=torch.float64) + _FLOOR_NATS
        stiffness = 1.0 / torch.tensor([t.lr for t in trained], dtype=torch.float64)
        updates = Updates.of(start, contributions)
        # a factor common to numerator and denominator is free: the largest loss is taken as one
        fair = (losses / losses.max()) ** self.options.q
        slopes = stiffness.square() * updates.squares()
        curvature = fair * (self.options.q * slopes / losses + stiffness)
        direction = updates.combine(fair * stiffness / curvature.sum())
        weight = (fair / fair.sum()).max().item()
        notes = {**conflicts(updates, direction), "largest_weight": weight}
        return Aggregated(stepped(start, direction, contributions), notes=notes), state

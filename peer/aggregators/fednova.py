"""FedNova: the mean of updates per local step, so that peers with more steps do not pull harder.

Wang et al., 2020, arXiv 2007.07481. Each update is divided by a_i, the weight with which its
gradients entered it (the number of steps for plain SGD; solvers say it as `nova_a`), and the mean
is made as long as the mean a_i. Equal a_i give FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from peer.aggregators.conflict import conflicts
from peer.aggregators.step import shares, stepped
from peer.aggregators.updates import Updates
from peer.options.entry import NoOptions
from protocol.ids import PeerId
from protocol.params import NO_STATE, State
from protocol.round import Aggregated, Contribution, Start, Trained

__all__ = ["FedNova"]


@dataclass(frozen=True, slots=True)
class FedNova:
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
        steps = torch.tensor([_steps(c.trained) for c in contributions], dtype=torch.float64)
        weights = shares(contributions)
        effective = torch.dot(weights, steps)
        updates = Updates.of(start, contributions)
        direction = updates.combine(effective * weights / steps)
        moved = stepped(start, direction, contributions)
        notes = {**conflicts(updates, direction), "effective_steps": effective.item()}
        return Aggregated(moved, notes=notes), state


def _steps(trained: Trained) -> float:
    """a_i; of a solver that does not say, its number of steps."""
    return trained.nova_a or float(trained.num_steps)

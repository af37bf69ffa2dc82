"""FedAvgM: FedAvg whose step keeps a share of its last velocity.

Hsu et al., 2019, arXiv 1909.06335: v = momentum v + mean update, and the start moves by -lr v. The
mean is added whole, not averaged into v, so an unchanging update is followed 1 / (1 - momentum)
times as far: lower lr accordingly. `momentum = 0` is FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.aggregators.conflict import conflicts
from peer.aggregators.step import kept, shares, stepped, unmoved
from peer.aggregators.updates import Updates
from peer.options.aggregators import FedAvgMOptions
from protocol.ids import PeerId
from protocol.params import State, add, norm
from protocol.round import Aggregated, Contribution, Start

__all__ = ["FedAvgM"]


@dataclass(frozen=True, slots=True)
class FedAvgM:
    options: FedAvgMOptions = field(default_factory=FedAvgMOptions)

    def init(self, start: Start) -> State:
        return {"velocity": unmoved(start)}

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        updates, lr = Updates.of(start, contributions), self.options.lr
        mean = updates.combine(shares(contributions))
        velocity = add(mean, state["velocity"], factor=self.options.momentum)
        moved = stepped(start, velocity, contributions, lr=lr)
        notes = {**conflicts(updates, velocity, lr), "mean_norm": norm(mean)}
        return Aggregated(moved, notes=notes), {"velocity": kept(velocity, start)}

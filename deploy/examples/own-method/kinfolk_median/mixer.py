"""The median of every coordinate over the closed neighbourhood; of an even number, the lower one.

Yin et al., 2018, arXiv 1803.01498, the server replaced by each peer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from kinfolk_median import MedianOptions
from peer.mixers.base import Head, Probe
from protocol.params import NO_STATE, State
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["Median"]


@dataclass(frozen=True, slots=True)
class Median:
    options: MedianOptions = field(default_factory=MedianOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        votes = [own] * self.options.own_votes + list(others)
        params = {
            name: torch.stack([vote.trained.params[name] for vote in votes]).median(dim=0).values
            for name in own.trained.params
        }
        weights = {other.sender: 1 / len(votes) for other in others}
        weights[own.sender] = self.options.own_votes / len(votes)
        return Mixed(Start(params), client_weight=weights), state

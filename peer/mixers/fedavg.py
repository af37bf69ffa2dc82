"""FedAvg by gossip: a mean over the closed neighbourhood, weighed by training samples.

McMahan et al., 2017, arXiv 1602.05629, Algorithm 1, the server replaced by each peer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.mixers.base import Head, Probe
from peer.mixers.neighbourhood import closed, shares
from peer.options.entry import NoOptions
from protocol.params import NO_STATE, State, combine
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["FedAvg"]


@dataclass(frozen=True, slots=True)
class FedAvg:
    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        everyone = closed(own, others)
        weights = shares(everyone, lambda c: float(c.trained.num_examples))
        params = combine([c.trained.params for c in everyone], list(weights.values()))
        return Mixed(Start(params), client_weight=weights), state

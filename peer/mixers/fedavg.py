"""FedAvg by gossip: a mean over the closed neighbourhood, weighed by training samples.

McMahan et al., 2017, arXiv 1602.05629, Algorithm 1, the server replaced by each peer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.mixers.base import Head, Probe
from peer.options.methods import NoOptions
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
        everyone = sorted([own, *others], key=lambda contribution: contribution.sender)
        raw = [c.trained.num_examples * c.freshness for c in everyone]
        weights = [weight / sum(raw) for weight in raw]
        params = combine([c.trained.params for c in everyone], weights)
        by_sender = {c.sender: weight for c, weight in zip(everyone, weights, strict=True)}
        return Mixed(Start(params), client_weight=by_sender), state

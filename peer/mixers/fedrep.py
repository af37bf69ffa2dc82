"""FedRep, the mixing half: bodies are averaged, each peer keeps its classifier.

Collins et al., 2021, arXiv 2102.07078, Algorithm 1. The paper averages with equal weights; so do
its runs on CIFAR, while those on FEMNIST weigh by training samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.mixers.base import Head, Probe
from peer.mixers.keep import body, completed, without_head
from peer.mixers.neighbourhood import closed, shares
from peer.options.mixers import FedRepOptions
from protocol.params import NO_STATE, State, combine
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["FedRep"]


@dataclass(frozen=True, slots=True)
class FedRep:
    options: FedRepOptions = field(default_factory=FedRepOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return without_head(trained, head)

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        everyone = closed(own, others)
        by_samples = self.options.weights == "samples"
        weights = shares(everyone, lambda c: float(c.trained.num_examples) if by_samples else 1.0)
        bodies = [body(c.trained.params, probe.head) for c in everyone]
        params = completed(combine(bodies, list(weights.values())), own.trained.params)
        return Mixed(Start(params), client_weight=weights), state

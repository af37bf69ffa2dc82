"""Gossip by Metropolis-Hastings weights: every graph is kept in balance, whatever its degrees.

Xiao and Boyd, 2004, "Fast linear iterations for distributed averaging". With degrees d

    w_ij = 1 / (1 + max(d_i, d_j)) for each neighbour j,    w_ii = 1 - the sum of those

The matrix of all w is symmetric, so repeated mixing without training ends at the plain mean of all
peers, which weights by the neighbourhood's size alone do not do. A neighbour that did not come
leaves its weight to the peer itself, and so does what a stale one has lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.mixers.base import Head, Probe
from peer.mixers.neighbourhood import closed
from peer.options.entry import NoOptions
from protocol.params import NO_STATE, State, combine
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["Metropolis"]


@dataclass(frozen=True, slots=True)
class Metropolis:
    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        degree = max(own.degree, len(others))  # its own number may be of a smaller roster
        given = {c.sender: c.freshness / (1.0 + max(degree, c.degree)) for c in others}
        kept = 1.0 - sum(given.values())
        everyone = closed(own, others)
        weights = {c.sender: given.get(c.sender, kept) for c in everyone}
        params = combine([c.trained.params for c in everyone], list(weights.values()))
        return Mixed(Start(params), client_weight=weights), state

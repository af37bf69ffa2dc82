"""FedIC (reconstruction): prototypes and rows of the classifier are mixed among those that agree.

Zheng et al., AAAI 2026, "Intra-Class Unbiased Prototype Aggregation and Classifier Collaboration
for Personalized Federated Learning", doi 10.1609/aaai.v40i34.40113. Only its abstract was
available: what stands here follows it, is filled in from FedPAC (Xu et al., 2023, arXiv 2306.11867)
and is not the authors' method to the letter. No number of it is theirs.

For each class c, peers that have examples of it are clustered by the direction of their prototypes
(average linkage on cosine distance). Peer m pulls its features to the mean prototype of its own
cluster, and its row c of the classifier becomes sum_j a_j phi_{j,c} over that cluster, where a
lies on the simplex and makes the least of

    sum_j a_j^2 V_j + |sum_j a_j (h_m - h_j)|^2,    h_j = p_j mu_j,
    V_j = (p_j E|z|^2 - p_j^2 |mu_j|^2) / n_j

with p_j the share of class c in the n_j examples of peer j, mu_j its prototype and E|z|^2 the mean
squared length of its features: variance against bias. Rows of classes that the peer does not have
are averaged like the body, by training samples. Letters: P peers, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.aggregators.convex import nearest_to_origin
from peer.mixers.base import Head, Probe
from peer.mixers.linkage import clusters, cosine_distances
from peer.mixers.neighbourhood import closed, shares
from peer.mixers.rows import mix_rows
from peer.options.mixers import FedICOptions
from peer.prototypes import Prototypes
from protocol.params import NO_STATE, State, combine
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["FedIC", "row_weights"]

_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class FedIC:
    options: FedICOptions = field(default_factory=FedICOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        everyone = closed(own, others)
        weights = shares(everyone, lambda c: float(c.trained.num_examples))
        fresh = torch.tensor([c.freshness for c in everyone], dtype=torch.float64)
        sent = [Prototypes.read(c.trained.extras) for c in everyone]
        me = everyone.index(own)
        allied = self._allied(sent, me)  # (P, C)
        targets = Prototypes.averaged(sent, (allied * fresh.unsqueeze(1)).to(sent[0].means.device))
        by_client = torch.tensor(list(weights.values()), dtype=torch.float64)
        by_class = by_client.unsqueeze(1).repeat(1, allied.shape[1])
        for label in allied.any(dim=0).nonzero().flatten().tolist():
            by_class[:, label] = row_weights(sent, me, label, allied[:, label], fresh)
        points = [c.trained.params for c in everyone]
        heads = {name: mix_rows(points, name, by_class) for name in probe.head.names}
        params = {**combine(points, by_client.tolist()), **heads}
        rows = zip(weights, map(tuple, by_class.tolist()), strict=True)
        notes = {"mean_cluster_size": _mean_size(allied)}
        start = Start(params, extras=targets.extras())
        return Mixed(start, weights, class_weight=dict(rows), notes=notes), state

    def _allied(self, sent: Sequence[Prototypes], me: int) -> Tensor:
        """Who is in the own cluster of each class, the own peer included: (P, C) bool."""
        owned = torch.stack([p.counts > 0 for p in sent]).cpu()  # (P, C)
        allied = torch.zeros_like(owned)
        for label in owned[me].nonzero().flatten().tolist():
            owners = owned[:, label].nonzero().flatten().tolist()
            distances = cosine_distances(torch.stack([sent[i].means[label] for i in owners]))
            for cluster in clusters(distances, self.options.cut):
                members = [owners[i] for i in cluster]
                if me in members:
                    allied[members, label] = True
        return allied


def row_weights(
    sent: Sequence[Prototypes], me: int, label: int, allied: Tensor, fresh: Tensor
) -> Tensor:
    """What each peer's row of a class weighs for one of them: (P,) float64, sums to 1.

    Args:
        sent: what all peers said of their features.
        me: whose weights.
        label: the class.
        allied: who is in the own cluster, (P,) bool.
        fresh: freshness of each, (P,), in (0, 1].
    """
    chosen = allied.nonzero().flatten().tolist()
    counts = torch.stack([sent[j].counts.clamp(min=0) for j in chosen]).double().cpu()  # (., C)
    means = torch.stack([sent[j].means[label] for j in chosen]).double().cpu()  # (., D)
    squares = torch.stack([sent[j].squares[label] for j in chosen]).double().cpu()
    examples = counts.sum(dim=1)
    part = counts[:, label] / examples
    centres = part.unsqueeze(1) * means
    variances = (part * squares - centres.square().sum(dim=1)) / examples
    gaps = centres[chosen.index(me)] - centres
    bias = gaps @ gaps.T
    found = nearest_to_origin(bias + variances.clamp(min=_least(bias, variances)).diag())
    weights = torch.zeros_like(fresh)
    weights[chosen] = found * fresh[chosen] / torch.dot(found, fresh[chosen])
    return weights


def _least(bias: Tensor, variances: Tensor) -> float:
    """A variance so small that it only decides between peers that are equally good."""
    largest = torch.maximum(bias.diagonal(), variances).max().item()
    return _TIE * largest if largest > 0.0 else 1.0


def _mean_size(allied: Tensor) -> float:
    """Peers in the own cluster, the own one included, averaged over the own classes."""
    sizes = allied.sum(dim=0).double()
    return sizes[sizes > 0].mean().item() if bool(allied.any()) else 0.0

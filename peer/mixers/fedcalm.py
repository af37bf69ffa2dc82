"""FedCALM: bodies move so that no peer's own update is opposed; classifiers never leave.

Zheng et al., 2025, CVPR, pp. 15444-15453. For each tensor of the body, with d_i = theta_i - theta
from where the peer's last round began:

    1. each d_i is freed of its conflicts as in PCGrad: v_i loses its component along every d_j that
       it opposes; the mean of all v_i is v.
    2. d = v + sum_i lam_i d_i leads `margin * |d_i|` along every d_i as far as multipliers allow:
       lam maximises sum_i lam_i (margin |d_i| - v.d_i) - |sum_i lam_i d_i|^2 / 2, 0 <= lam_i <= cap

and theta + d is the next body. Both stages are sums of the d_i, so everything but the last sum is
done on their inner products, in float64. A peer frees its update first of what it opposes most: by
that order no name decides. Letters: P peers of the closed neighbourhood, n numbers of a tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.aggregators.updates import Updates
from peer.mixers.base import Head, Probe
from peer.mixers.box import highest_in_box
from peer.mixers.keep import body, completed, without_head
from peer.mixers.neighbourhood import closed, shares
from peer.options.mixers import FedCalmOptions
from protocol.params import State
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["FedCalm", "coefficients", "freed"]

_ORIGIN = "origin"  # of the state: where the last round began
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class FedCalm:
    """Start from the last start plus a step that helps all neighbours.

    In a full mesh with everybody present all peers hold one body. Elsewhere each has its own, and
    the promise holds for its neighbourhood. A stale peer weighs less in the mean, and its
    multiplier is capped lower. A peer alone keeps its result.
    """

    options: FedCalmOptions = field(default_factory=FedCalmOptions)

    def init(self, start: Start) -> State:
        return {_ORIGIN: start.params}

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return without_head(trained, head)

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        everyone = closed(own, others)
        weights = shares(everyone, lambda _: 1.0)
        if not others:
            return Mixed(Start(own.trained.params), weights), {_ORIGIN: own.trained.params}
        origin = {n: state[_ORIGIN][n] for n in body(own.trained.params, probe.head)}
        updates = Updates(origin, [c.trained.params for c in everyone])
        mean = torch.tensor(list(weights.values()), dtype=torch.float64)
        fresh = torch.tensor([c.freshness for c in everyone], dtype=torch.float64)
        mixed, notes = {}, {"opposed_pairs": 0.0, "pushed_tensors": 0.0}
        for name, tensor in origin.items():
            gram = updates.gram([name])
            factors, pushed = coefficients(
                gram, mean, self.options.margin, self.options.cap * fresh
            )
            step = updates.combine(factors, [name])[name]  # start minus trained: subtracted
            mixed[name] = (tensor.double() - step).to(tensor.dtype)
            notes["opposed_pairs"] += float((gram.triu(1) < 0.0).sum())
            notes["pushed_tensors"] += float(pushed)
        params = completed(mixed, own.trained.params)
        return Mixed(Start(params), weights, notes=notes), {_ORIGIN: params}


def coefficients(gram: Tensor, mean: Tensor, margin: float, caps: Tensor) -> tuple[Tensor, bool]:
    """What each update of a tensor enters the step with: (P,), and whether stage 2 did anything.

    Args:
        gram: inner products of the updates, (P, P) float64.
        mean: weights of the freed updates, (P,) float64, sums to 1.
        margin: how far the step shall lead along each update, in the units of parameters.
        caps: of the multipliers, (P,) float64.
    """
    lengths = gram.diagonal().clamp(min=0.0).sqrt()
    moving = lengths > 0.0
    if not bool(moving.any()):
        return mean, False
    factors = mean @ freed(gram, lengths)
    part = lengths[moving]
    cosines = gram[moving][:, moving] / torch.outer(part, part)
    lacking = margin - (factors @ gram)[moving] / part
    # in units of length, so that short updates do not stall the search
    pushes = highest_in_box(cosines, lacking, caps[moving] * part)
    factors[moving] += pushes / part
    return factors, bool((pushes > 0.0).any())


def freed(gram: Tensor, lengths: Tensor) -> Tensor:
    """PCGrad (Yu et al., 2020, arXiv 2001.06782) on inner products: v_i = sum_j row_i[j] d_j.

    Args:
        gram: inner products of the updates, (P, P) float64.
        lengths: their norms, (P,); an update of length zero opposes nobody.

    Returns:
        (P, P) float64.
    """
    rows = torch.eye(len(gram), dtype=torch.float64)
    cosines = gram / torch.outer(lengths, lengths).clamp(min=_TINY)
    for i, row in enumerate(rows):
        for j in cosines[i].argsort(stable=True).tolist():
            along = torch.dot(row, gram[:, j])
            if j != i and along < 0.0:
                row[j] -= along / gram[j, j]
    return rows

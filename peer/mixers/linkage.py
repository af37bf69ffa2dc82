"""Clusters of a few vectors by direction: average linkage on cosine distance."""

import math

import torch
from torch import Tensor

__all__ = ["clusters", "cosine_distances"]


def cosine_distances(points: Tensor) -> Tensor:
    """One minus the cosine of every pair: (P, P) float64 in [0, 2].

    A vector of zeros has no direction: it is at right angles to all others.

    Args:
        points: (P, D), finite.
    """
    wide = points.double().cpu()
    sizes = wide.abs().amax(dim=1, keepdim=True)  # first, so that no square overflows or vanishes
    wide = torch.where(sizes > 0.0, wide / sizes, 0.0)
    lengths = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    units = wide / lengths.clamp(min=1.0)  # which it is at least, or zero
    distances: Tensor = 1.0 - units @ units.T
    return distances.clamp(min=0.0).fill_diagonal_(0.0)


def clusters(distances: Tensor, cut: float) -> list[list[int]]:
    """Join the two clusters that are nearest on average, until none are within `cut`.

    Args:
        distances: (P, P), symmetric.
        cut: largest mean distance between the members of two clusters that are joined.

    Returns:
        Clusters of indices, each ascending, by their first member.
    """
    members = [[i] for i in range(len(distances))]
    between = distances.clone().fill_diagonal_(math.inf)
    while between.min() <= cut:
        first, second = sorted(divmod(int(between.argmin()), len(distances)))
        sizes = len(members[first]), len(members[second])
        joined = (sizes[0] * between[first] + sizes[1] * between[second]) / sum(sizes)
        between[first] = between[:, first] = joined
        between[second] = between[:, second] = math.inf
        between[first, first] = math.inf
        members[first] = sorted(members[first] + members[second])
        members[second] = []
    return [cluster for cluster in members if cluster]

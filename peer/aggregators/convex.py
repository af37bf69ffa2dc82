"""Small convex problems on weights: the nearest point to the origin, and the simplex.

Everything is float64 on the CPU, of the size of the number of peers.
"""

import torch
from torch import Tensor

__all__ = ["nearest_to_origin", "onto_simplex"]

_GAP = 1e-12  # relative to the longest point squared: how far from optimal is optimal
_ZERO = 1e-12  # a weight that small is none
_STEPS_PER_POINT = 10  # a bound, against going in circles by rounding; it takes about one


def onto_simplex(point: Tensor) -> Tensor:
    """The nearest weights that are >= 0 and sum to 1: (n,) to (n,).

    Sorted-threshold rule (Duchi et al., 2008, figure 1).
    """
    falling = point.sort(descending=True).values
    excess = (falling.cumsum(0) - 1.0) / torch.arange(1, len(point) + 1)
    last = int((falling > excess).sum()) - 1
    return (point - excess[last]).clamp(min=0.0)


def nearest_to_origin(gram: Tensor) -> Tensor:
    """Weights of the point of a convex hull that is nearest to the origin: (n,), sum to 1.

    Wolfe, 1976, "Finding the nearest point in a polytope", on inner products alone. The point x
    that it finds satisfies q.x >= ||x||^2 for every point q of the hull.

    Args:
        gram: inner products of the points that span the hull, (n, n), n >= 1.
    """
    longest = gram.diagonal().max()
    gram = gram / longest if longest > 0.0 else gram
    weights = torch.zeros(len(gram), dtype=torch.float64)
    weights[gram.diagonal().argmin()] = 1.0
    pulls, step = gram @ weights, 0
    while pulls.min() < weights @ pulls - _GAP and step < _STEPS_PER_POINT * len(gram):
        weights = _nearest_within(gram, weights, int(pulls.argmin()))
        pulls, step = gram @ weights, step + 1
    return weights


def _nearest_within(gram: Tensor, weights: Tensor, entering: int) -> Tensor:
    """Go from the point of `weights` towards the nearest of the flat through its corners.

    The corners are those with a weight, and `entering`. A corner whose weight falls to zero on the
    way is left, and the flat becomes smaller.
    """
    corners = weights > 0.0
    corners[entering] = True
    while True:
        towards = torch.zeros_like(weights)
        towards[corners] = _nearest_of_flat(gram[corners][:, corners])
        if bool((towards[corners] > _ZERO).all()):
            return towards
        leaving = corners & (towards <= _ZERO)
        room = weights[leaving] / (weights - towards)[leaving].clamp(min=_ZERO)
        weights = weights + room.min() * (towards - weights)
        corners[leaving.nonzero()[room.argmin()]] = False
        corners &= weights > _ZERO
        weights = torch.where(corners, weights, 0.0)


def _nearest_of_flat(gram: Tensor) -> Tensor:
    """Weights, of any sign, of the nearest point of the flat through all points: sum to 1."""
    ones = torch.ones(len(gram), 1, dtype=torch.float64)
    weights: Tensor = torch.linalg.lstsq(gram + 1.0, ones, driver="gelsd").solution.squeeze(1)
    return weights / weights.sum()

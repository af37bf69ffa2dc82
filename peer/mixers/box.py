"""A concave quadratic on a box, the size of a neighbourhood: FedCALM's multipliers."""

from collections.abc import Sequence

from torch import Tensor

__all__ = ["highest_in_box"]

_DONE = 1e-13  # of the farthest that any coordinate went: a sweep that moves less has arrived
_MAX_SWEEPS = 100_000  # against going on for ever on rounding


def highest_in_box(curvature: Tensor, slope: Tensor, caps: Sequence[float]) -> list[float]:
    """Where `x.slope - x.curvature.x / 2` is highest for `0 <= x <= caps`.

    By coordinates, each to its best in turn, until none moves. With a singular curvature there are
    many such x, which give the same `curvature.x`.

    Args:
        curvature: (n, n) float64, positive semi-definite, with a positive diagonal.
        slope: (n,) float64.
        caps: n of them, >= 0.
    """
    rows, pulls = curvature.tolist(), slope.tolist()
    found = [0.0] * len(pulls)
    farthest = 0.0
    for _ in range(_MAX_SWEEPS):
        moved = 0.0
        for i, row in enumerate(rows):
            free = sum(k * x for k, x in zip(row, found, strict=True))
            best = min(max(found[i] + (pulls[i] - free) / row[i], 0.0), caps[i])
            moved = max(moved, abs(best - found[i]))
            found[i] = best
        farthest = max(farthest, moved)
        if moved <= _DONE * farthest:
            break
    return found

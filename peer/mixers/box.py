"""A concave quadratic on a box, the size of a neighbourhood: FedCALM's multipliers."""

import torch
from torch import Tensor

__all__ = ["highest_in_box"]

_DONE = 1e-12  # of the largest coordinate: a sweep that moves none by more has arrived
_FLAT = 1e-14  # relative: a curvature below it is none
_MAX_SWEEPS = 1000  # against going in circles by rounding; it takes a few


def highest_in_box(curvature: Tensor, slope: Tensor, caps: Tensor) -> Tensor:
    """Where `x.slope - x.curvature.x / 2` is highest for `0 <= x <= caps`: (n,).

    By coordinates, each to its best in turn, until none moves. After each sweep those that lie
    between their bounds go to their best together, as far as the box lets them: directions that are
    nearly equal or opposite, which coordinates alone would follow for ever, then take one step.
    With a singular curvature there are many such x, all of which give the same `curvature.x`.

    Args:
        curvature: (n, n) float64, positive semi-definite, with a positive diagonal.
        slope: (n,) float64.
        caps: (n,) float64, >= 0.
    """
    found, moved, sweep = torch.zeros_like(slope), torch.inf, 0
    while moved > _DONE * found.max().item() and sweep < _MAX_SWEEPS:
        before = found.clone()
        for i, row in enumerate(curvature):
            best = found[i] + (slope[i] - row @ found) / row[i]
            found[i] = best.clamp(min=0.0).minimum(caps[i])
        moved, sweep = (found - before).abs().max().item(), sweep + 1
        found = _together(curvature, slope, caps, found)
    return found


def _together(curvature: Tensor, slope: Tensor, caps: Tensor, found: Tensor) -> Tensor:
    """Move the coordinates between their bounds to the best that they have together, or to a bound.

    Along directions without curvature there is no best: they are followed to a bound first.
    """
    free = (found > 0.0) & (found < caps)
    if not bool(free.any()):
        return found
    bends, ways = torch.linalg.eigh(curvature[free][:, free])
    pulls = ways.T @ (slope - curvature @ found)[free]
    flat = bends <= _FLAT * bends[-1]
    if bool((pulls[flat].abs() > _DONE * slope.abs().max()).any()):
        lengths, most = torch.where(flat, pulls, 0.0), torch.inf
    else:
        lengths, most = torch.where(flat, 0.0, pulls / bends), 1.0
    step = torch.zeros_like(found)
    step[free] = ways @ lengths
    bounds = torch.where(step > 0.0, caps, 0.0)
    room = torch.where(step != 0.0, (bounds - found) / step, torch.inf)  # steps to the bound
    size = room.min().clamp(max=most)
    return torch.where(room <= size, bounds, (found + size * step).clamp(min=0.0).minimum(caps))

"""What every aggregator begins and ends with: weights of the peers, and the step to the next start.

State is kept in float32 at least, whatever the parameters are in: a direction that is carried over
many rounds would drown in the rounding of bfloat16.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from protocol.params import NOTHING, Params, pairwise, weighted_mean
from protocol.round import Contribution, Start

__all__ = ["evenly", "kept", "shares", "stepped", "unmoved"]


def shares(contributions: Sequence[Contribution]) -> Tensor:
    """Weights of the present peers by training samples: (m,) float64, sums to 1."""
    counts = [c.trained.num_examples for c in contributions]
    return torch.tensor(counts, dtype=torch.float64) / sum(counts)


def evenly(count: int) -> Tensor:
    """Equal weights of so many peers: (count,) float64, sums to 1."""
    return torch.full((count,), 1.0 / count, dtype=torch.float64)


def stepped(
    start: Start,
    direction: Params,
    contributions: Sequence[Contribution],
    *,
    lr: float = 1.0,
    extras: Params = NOTHING,
) -> Start:
    """The start less `lr` times the direction, with the buffers that the peers have on average.

    Floating-point buffers are averaged by training samples, of integer ones the largest stands,
    whatever the method does with the parameters.
    """
    params = pairwise(lambda t, d: t.double().sub(d, alpha=lr).to(t.dtype), start.params, direction)
    buffers = weighted_mean((c.trained.buffers, c.trained.num_examples) for c in contributions)
    return Start(params, buffers, extras)


def unmoved(start: Start) -> Params:
    """A direction of zeros, as state keeps it."""
    return kept({n: torch.zeros_like(t) for n, t in start.params.items()}, start)


def kept(direction: Params, start: Start) -> Params:
    """A direction as state keeps it."""
    return pairwise(
        lambda t, d: d.to(torch.promote_types(t.dtype, torch.float32)), start.params, direction
    )

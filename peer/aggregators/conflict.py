"""How a step suits the updates that it was made of: the same numbers for every aggregator."""

import torch
from torch import Tensor

from peer.aggregators.updates import Updates
from protocol.params import Params, norm

__all__ = ["conflicts", "num_opposed"]

_AGAINST = 1e-7  # a cosine less than minus that is a conflict; nearer to zero it may be rounding


def num_opposed(gains: Tensor, lengths: Tensor, size: float) -> int:
    """How many updates a step goes against.

    Args:
        gains: inner products of the updates with the step.
        lengths: norms of the updates.
        size: norm of the step.
    """
    return int((gains < -_AGAINST * size * lengths).sum())


def conflicts(updates: Updates, direction: Params, lr: float = 1.0) -> dict[str, float]:
    """Evidence of a round, measured on the step.

    `norm` is the length of the step, lr included. `smallest_alignment` is the least inner product
    of the direction with an update made one long, `in_conflict` the number of updates that it goes
    against; peers whose update is zero are not among the `updates_used`.
    """
    rows = Updates(updates.start, updates.trained)
    lengths, gains = rows.squares().sqrt(), rows.along(direction)
    used = lengths > 0.0
    alignments = torch.where(used, gains / lengths, 0.0)
    size = norm(direction)
    return {
        "norm": lr * size,
        "updates_used": float(used.sum()),
        "smallest_alignment": float(alignments[used].min()) if used.any() else 0.0,
        "in_conflict": float(num_opposed(gains[used], lengths[used], size)),
    }

"""The classifier, row by row: each class with weights of its own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from protocol.params import Params

__all__ = ["mix_rows"]


def mix_rows(points: Sequence[Params], name: str, weights: Tensor) -> Tensor:
    """Sum of the points' tensors of that name, each row with its own weight of (points, classes).

    In float64; the result is of the points' dtype.
    """
    stacked = torch.stack([point[name].double() for point in points])  # (points, classes, ...)
    shaped = weights.to(stacked.device).reshape(*weights.shape, *[1] * (stacked.ndim - 2))
    return (shaped * stacked).sum(dim=0).to(points[0][name].dtype)

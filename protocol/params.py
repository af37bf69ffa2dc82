"""Named tensors as points of a vector space: the only arithmetic that plug-ins need.

Knows torch; knows nothing of peers, rounds, bytes or sockets.
No function here changes its arguments. Everything is evaluated without recording gradients.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from protocol.errors import LayoutError

__all__ = [
    "NOTHING",
    "NO_STATE",
    "Params",
    "State",
    "add",
    "combine",
    "dot",
    "leave_one_out",
    "norm",
    "pairwise",
    "scale",
    "sub",
    "total",
    "weighted_mean",
    "zeros_like",
]

Params: TypeAlias = Mapping[str, Tensor]
State: TypeAlias = Mapping[str, Params]  # what a plug-in carries to its next round, by a name each

NOTHING: Params = MappingProxyType({})
NO_STATE: State = MappingProxyType({})


def _check_layout(left: Params, right: Params) -> None:
    if left.keys() != right.keys():
        odd = sorted(left.keys() ^ right.keys())
        raise LayoutError(f"names differ: {', '.join(odd[:5])}{' ...' if len(odd) > 5 else ''}")
    for name, tensor in left.items():
        if tensor.shape != right[name].shape:
            raise LayoutError(f"{name}: {tuple(tensor.shape)} against {tuple(right[name].shape)}")


def pairwise(fn: Callable[[Tensor, Tensor], Tensor], left: Params, right: Params) -> Params:
    """Apply `fn` to the tensors of equal name.

    Raises:
        LayoutError: the two sides differ in names, or a pair in shape.
    """
    _check_layout(left, right)
    with torch.no_grad():
        return {name: fn(tensor, right[name]) for name, tensor in left.items()}


def add(left: Params, right: Params, *, factor: float = 1.0) -> Params:
    """`left + factor * right`, in one launch for all tensors.

    Raises:
        LayoutError: the two sides differ in names or shapes.
    """
    _check_layout(left, right)
    if not left:
        return {}
    with torch.no_grad():
        sums = torch._foreach_add(  # noqa: SLF001 - one GPU launch instead of one per tensor
            list(left.values()), [right[name] for name in left], alpha=factor
        )
    return dict(zip(left, sums, strict=True))


def sub(left: Params, right: Params) -> Params:
    return add(left, right, factor=-1.0)


def scale(params: Params, factor: float) -> Params:
    with torch.no_grad():
        return {name: tensor * factor for name, tensor in params.items()}


def zeros_like(params: Params) -> Params:
    return {name: torch.zeros_like(tensor) for name, tensor in params.items()}


def dot(left: Params, right: Params) -> float:
    """Inner product over all tensors, accumulated in float64.

    Raises:
        LayoutError: the two sides differ in names or shapes.
    """
    products = pairwise(
        lambda a, b: torch.dot(a.flatten().double(), b.flatten().double()), left, right
    )
    return float(sum((p.item() for p in products.values()), 0.0))


def norm(params: Params) -> float:
    """Euclidean norm over all tensors, accumulated in float64."""
    norms = (torch.linalg.vector_norm(t, dtype=torch.float64).item() for t in params.values())
    return math.hypot(*norms)


def total(points: Sequence[Params]) -> Params:
    """Sum in the order given, accumulated in float64 and kept there.

    Args:
        points: at least one; the order decides the last bits, so callers sort by sender.

    Raises:
        ValueError: there is no point.
        LayoutError: the points differ in names or shapes.
    """
    if not points:
        raise ValueError("the sum of no points has no layout")
    with torch.no_grad():
        sums = {name: tensor.to(torch.float64, copy=True) for name, tensor in points[0].items()}
        for point in points[1:]:
            _check_layout(sums, point)
            for name, tensor in point.items():
                sums[name] += tensor
    return sums


def leave_one_out(sums: Params, point: Params, count: int) -> Params:
    """Mean of the other `count - 1` points, from the `sums` of all and the one left out.

    Args:
        sums: `total` of all points, float64.
        point: the one to leave out; its dtypes are those of the result.
        count: number of points in `sums`, >= 2.

    Raises:
        ValueError: `count` leaves nobody.
        LayoutError: the two sides differ in names or shapes.
    """
    if count < 2:
        raise ValueError(f"count must be >= 2 to leave one out, got {count}")
    return pairwise(lambda s, t: ((s - t) / (count - 1)).to(t.dtype), sums, point)


def weighted_mean(points: Iterable[tuple[Params, float]]) -> Params:
    """Average in one pass, holding one point at a time.

    The running form keeps the mean of equal points equal to them, bit for bit.
    The order of `points` decides the last bits: callers sort by sender.

    Args:
        points: pairs of a point and its weight; weights are >= 0 and sum to > 0.

    Raises:
        ValueError: a weight is negative or not finite, or none is positive.
        LayoutError: the points differ in names or shapes.
    """
    mean: Params = NOTHING
    first = True
    mass = 0.0
    for point, weight in points:
        if not 0.0 <= weight < float("inf"):
            raise ValueError(f"weight must be finite and >= 0, got {weight}")
        if weight == 0.0:
            continue
        mass += weight
        mean = point if first else pairwise(_step_towards(weight / mass), mean, point)
        first = False
    if mass == 0.0:
        raise ValueError("no point has a positive weight")
    return mean


def _step_towards(fraction: float) -> Callable[[Tensor, Tensor], Tensor]:
    def step(mean: Tensor, point: Tensor) -> Tensor:
        if not mean.is_floating_point():
            return torch.maximum(mean, point)  # counters of batches: the largest stands
        return torch.lerp(mean, point, fraction)

    return step


def combine(points: Sequence[Params], weights: Sequence[float]) -> Params:
    """Weighted sum with weights that may be anything, accumulated in float64.

    Args:
        points: at least one, in order of sender.
        weights: one for each point.

    Raises:
        ValueError: no point, or numbers of points and weights that differ.
        LayoutError: the points differ in names or shapes.
    """
    if not points or len(points) != len(weights):
        raise ValueError(f"{len(points)} points with {len(weights)} weights")
    for point in points[1:]:
        _check_layout(points[0], point)
    mixed = {}
    with torch.no_grad():
        for name, first in points[0].items():  # one tensor at a time: no model in float64
            acc = first.double() * weights[0]
            for point, weight in zip(points[1:], weights[1:], strict=True):
                acc.add_(point[name], alpha=weight)
            mixed[name] = acc.to(first.dtype)
    return mixed

"""Slopes to follow, made of the plain gradient and what a method adds to it."""

from collections.abc import Callable

import torch
from torch import Tensor

from peer.solvers.base import Batch, Task
from peer.solvers.descent import Slope, slope
from protocol.params import Params, add, sub

__all__ = ["clipped", "length", "pulled", "scaled", "tilted"]


def _changed(follow: Slope, change: Callable[[Params, Params], Params]) -> Slope:
    """Follow another gradient: `change` of the point and the gradient there."""

    def at(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        loss, grad, buffers = follow(task, params, buffers, batch)
        return loss, change(params, grad), buffers

    return at


def pulled(to: Params, strength: float, follow: Slope = slope) -> Slope:
    """Add the gradient of `strength / 2 * ||w - to||^2`, over all parameters and no buffer."""
    if not strength:
        return follow
    return _changed(follow, lambda params, grad: add(grad, sub(params, to), factor=strength))


def tilted(by: Params, follow: Slope = slope) -> Slope:
    """Add a constant: the gradient of `<by, w>`."""
    return _changed(follow, lambda _, grad: add(grad, by))


def clipped(longest: float, follow: Slope = slope) -> Slope:
    """Shorten a gradient that is longer than `longest`, over all parameters together."""
    return _changed(follow, lambda _, grad: scaled(grad, (longest / length(grad)).clamp(max=1.0)))


def length(params: Params) -> Tensor:
    """Euclidean norm over all tensors: (), float32 at least, and on their device.

    `protocol.params.norm` reads its result, for which a GPU would have to wait in every step.
    """
    norms = [
        torch.linalg.vector_norm(t, dtype=torch.promote_types(t.dtype, torch.float32))
        for t in params.values()
    ]
    whole: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return whole


def scaled(params: Params, factor: Tensor) -> Params:
    """Every tensor times a number that stays on its device: ()."""
    with torch.no_grad():
        return {name: tensor * factor.to(tensor.dtype) for name, tensor in params.items()}

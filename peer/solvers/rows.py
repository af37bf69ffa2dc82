"""Rows of weights, one per output channel, and where FedCONST lets them move.

Kim et al., 2025, PMLR 267:30248. A row of a weight moves only where that is orthogonal to ones
(its mean stays) and to its value at the start of the round. Rows of one or two entries would be
frozen and are left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from protocol.params import Params

__all__ = ["Anchor", "centred", "direction", "project"]

Mode = Literal["joint", "sequential"]

_FROZEN_ENTRIES = 2  # two constraints leave a row of so many no way to go
_CONSTANT = 1e-6  # relative: a row whose centred part is smaller has no direction of its own


def centred(params: Params, rows: Mapping[str, int]) -> Params:
    """Take its mean from every row of the weights named in `rows`; the rest as it is."""
    with torch.no_grad():
        return {
            name: _restored(_centre(_flat(tensor, rows[name])), tensor, rows[name])
            if _is_free(tensor, rows.get(name))
            else tensor
            for name, tensor in params.items()
        }


def direction(start: Tensor, mode: Mode) -> Tensor:
    """Unit vectors that the rows may not move along, zero where a row has none: (rows, entries).

    Args:
        start: rows at the start of the round, (rows, entries).
        mode: `joint` takes the part of the row that is orthogonal to ones; `sequential` the row
            itself, as printed in the paper, which lets the mean drift after the projection.
    """
    axis = _centre(start) if mode == "joint" else start
    length = torch.linalg.vector_norm(axis, dim=1, keepdim=True)
    least = _CONSTANT * torch.linalg.vector_norm(start, dim=1, keepdim=True)
    return torch.where(length > least, axis / length, torch.zeros_like(axis))


def project(moved: Tensor, axis: Tensor) -> Tensor:
    """Take from each displacement its mean, then what lies along `axis`: (rows, entries)."""
    free = _centre(moved)
    return free.addcmul_(axis, (axis * free).sum(dim=1, keepdim=True), value=-1.0)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The start of a round, and the set around it that a row may reach."""

    start: Params
    axes: Mapping[str, Tensor]  # `direction` of each constrained weight
    rows: Mapping[str, int]

    @staticmethod
    def at(
        start: Params, rows: Mapping[str, int], mode: Mode, reference: Params | None = None
    ) -> "Anchor":
        """Confine displacements from `start` to what is orthogonal to rows of `reference`.

        Args:
            start: where the round begins.
            rows: constrained weights, with the axis of their output channels.
            mode: of `direction`.
            reference: of the layout of `start`; by default that.
        """
        facing = start if reference is None else reference
        free = {name: axis for name, axis in rows.items() if _is_free(start[name], axis)}
        with torch.no_grad():
            axes = {name: direction(_flat(facing[name], axis), mode) for name, axis in free.items()}
        return Anchor(start, axes, free)

    def confine(self, params: Params) -> Params:
        """Project the displacement from the start; unconstrained tensors as they are."""
        inside = dict(params)
        with torch.no_grad():
            for name, axis in self.axes.items():
                start, row = self.start[name], self.rows[name]
                moved = project(_flat(params[name] - start, row), axis)
                inside[name] = start + _restored(moved, start, row)
        return inside


def _is_free(tensor: Tensor, axis: int | None) -> bool:
    return axis is not None and tensor.numel() > _FROZEN_ENTRIES * tensor.shape[axis]


def _centre(rows: Tensor) -> Tensor:
    return rows - rows.mean(dim=1, keepdim=True)


def _flat(tensor: Tensor, axis: int) -> Tensor:
    """As (rows, entries), one row for each index of `axis`; in float32 at least."""
    rows = (tensor.movedim(axis, 0) if axis else tensor).flatten(1)
    return rows.float() if rows.itemsize < torch.float32.itemsize else rows


def _restored(rows: Tensor, like: Tensor, axis: int) -> Tensor:
    """The inverse of `_flat`."""
    if axis:
        return rows.to(like.dtype).reshape(like.movedim(axis, 0).shape).movedim(0, axis)
    return rows.to(like.dtype).view_as(like)

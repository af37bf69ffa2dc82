"""The updates of one round as rows of a matrix that is never whole in memory.

Rows are taken in float64, some coordinates at a time, so that memory is bounded by the model's
size and a block, whatever the number of peers. Only inner products and sums leave.
Letters: R rows, first the updates in order of sender, then what else is a row; C coordinates.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.params import Params
from protocol.round import Contribution, Start

__all__ = ["Updates"]

_BLOCK_NUMBERS = 1 << 21  # of float64 in a block: 16 MiB


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Start minus trained, as `protocol.round.descent`; subtracting a row goes where its peer went.

    Attributes:
        others: further rows, which are directions already, e.g. what an earlier round gave.
    """

    start: Params
    trained: Sequence[Params]
    others: Sequence[Params] = ()

    @staticmethod
    def of(
        start: Start, contributions: Sequence[Contribution], others: Sequence[Params] = ()
    ) -> "Updates":
        return Updates(start.params, [c.trained.params for c in contributions], others)

    def __len__(self) -> int:
        return len(self.trained) + len(self.others)

    @torch.no_grad()
    def gram(self, names: Iterable[str] | None = None) -> Tensor:
        """Inner products of all rows over the tensors of these names, or all: (R, R) float64.

        A row that is not finite, or too long for its square to be, counts as zero.
        """
        total = torch.zeros(len(self), len(self), dtype=torch.float64)
        for _, _, block in self._blocks(names):
            total += (block @ block.T).cpu()
        sound = total.diagonal().isfinite()
        return torch.where(torch.outer(sound, sound), total, 0.0)

    @torch.no_grad()
    def squares(self) -> Tensor:
        """Squared norms of all rows: the diagonal of `gram`, without the rest; (R,) float64."""
        total = torch.zeros(len(self), dtype=torch.float64)
        for _, _, block in self._blocks(None):
            total += block.square().sum(dim=1).cpu()
        return total

    @torch.no_grad()
    def along(self, direction: Params) -> Tensor:
        """Inner products of all rows with a direction, over its tensors: (R,) float64."""
        total = torch.zeros(len(self), dtype=torch.float64)
        for name, part, block in self._blocks(direction):
            total += (block @ direction[name].flatten()[part].double()).cpu()
        return total

    @torch.no_grad()
    def combine(self, weights: Tensor, names: Iterable[str] | None = None) -> Params:
        """Sum of the rows by weights (R,) that may be anything; float64."""
        factors = weights.tolist()
        sums = {}
        for name in self.start if names is None else names:
            origin = self.start[name].double()
            sums[name] = torch.zeros_like(origin)
            for factor, point in zip(factors, self.trained, strict=False):
                if factor:  # what weighs nothing may be anything
                    sums[name].add_(origin - point[name], alpha=factor)
            for factor, row in zip(factors[len(self.trained) :], self.others, strict=True):
                if factor:
                    sums[name].add_(row[name], alpha=factor)
        return sums

    def _blocks(self, names: Iterable[str] | None) -> Iterator[tuple[str, slice, Tensor]]:
        """Every tensor cut into (R, C) float64, with its name and the coordinates."""
        width = max(1, _BLOCK_NUMBERS // len(self))
        for name in self.start if names is None else names:
            start = self.start[name].flatten()
            trained = [point[name].flatten() for point in self.trained]
            others = [row[name].flatten() for row in self.others]
            for at in range(0, start.numel(), width):
                part = slice(at, at + width)
                origin = start[part].double()
                rows = [origin - point[part] for point in trained]
                yield name, part, torch.stack([*rows, *(row[part].double() for row in others)])

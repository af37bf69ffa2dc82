"""CRAFT's problem in one group of layers, solved on inner products alone.

Wang et al., 2026, arXiv 2605.21317. With unit updates U (m rows), targets rho that sum to 1 and the
unit reference r (last round's result, or zero):

    g = r + U^+ (rho - U r) = U^+ rho + (I - U^+ U) r

so the reference acts only where no present update has a component. U g = rho can be met exactly
unless some combination of the updates vanishes while that of the targets does not; g is then the
least-squares answer, some peers get less than their target, and a few may be moved against.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from peer.aggregators.convex import nearest_to_origin
from peer.aggregators.spectrum import Spectrum
from peer.options.aggregators import CraftOptions

__all__ = ["Solution", "solve"]

_MISSED = 1e-6  # of the largest target: a residual above it is no rounding


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Solution:
    """The step of one group as weights of its rows, and what is known of it.

    Attributes:
        weights: of the updates as they came and, last, of the memory as it is stored: (m + 1,).
        lengths: norms of the updates, zero where one is not usable, (m,).
        targets: rho of the usable updates, zero elsewhere, (m,).
        rank: of U, by the tolerance.
        conditioning: smallest over largest singular value that counts, 0 without any.
        reference_share: norm of what the reference adds over that of the whole.
        infeasible: U g = rho has no solution.
    """

    weights: Tensor
    lengths: Tensor
    targets: Tensor
    rank: int = 0
    conditioning: float = 0.0
    reference_share: float = 0.0
    infeasible: bool = False

    @property
    def usable(self) -> Tensor:
        return self.lengths > 0.0


def solve(gram: Tensor, examples: Tensor, options: CraftOptions) -> Solution:
    """Find g of one group.

    Args:
        gram: inner products of the updates and, last, the memory: (m + 1, m + 1) float64.
        examples: training samples behind each update, (m,) float64.
        options: `tol`, `single` and `policy` are looked at.
    """
    lengths = gram.diagonal()[:-1].sqrt()
    usable = lengths > 0.0
    targets = torch.where(usable, examples, 0.0)
    weights = torch.zeros(len(gram), dtype=torch.float64)
    if not usable.any():
        return Solution(weights=weights, lengths=lengths, targets=targets)
    targets = targets / targets.sum()
    if int(usable.sum()) == 1 and options.single == "raw":
        weights[:-1][usable] = 1.0
        return Solution(weights=weights, lengths=lengths, targets=targets, rank=1, conditioning=1.0)
    size, past = lengths[usable], gram[-1, -1].sqrt()
    unit = gram[:-1, :-1][usable][:, usable] / torch.outer(size, size)
    seen = gram[:-1, -1][usable] / (size * past) if past > 0.0 else torch.zeros_like(size)
    spectrum, rho = Spectrum.of(unit, options.tol), targets[usable]
    infeasible = bool((rho - spectrum.within_reach(rho)).abs().max() > _MISSED * rho.max())
    share = 0.0
    if not infeasible or options.policy == "lstsq":
        weights[:-1][usable] = spectrum.solve(rho - seen) / size
        if past > 0.0:
            weights[-1] = 1.0 / past
            share = _share_of_reference(spectrum, rho, seen)
    elif options.policy == "minnorm":
        weights[:-1][usable] = nearest_to_origin(unit) / size
    return Solution(
        weights=weights,
        lengths=lengths,
        targets=targets,
        rank=spectrum.rank,
        conditioning=spectrum.conditioning,
        reference_share=share,
        infeasible=infeasible,
    )


def _share_of_reference(spectrum: Spectrum, rho: Tensor, seen: Tensor) -> float:
    """Norm of (I - U^+ U) r over that of U^+ rho + (I - U^+ U) r, which are orthogonal."""
    unseen = max(0.0, 1.0 - float(seen @ spectrum.solve(seen)))
    shortest = max(0.0, float(rho @ spectrum.solve(rho)))
    return math.sqrt(unseen / (unseen + shortest)) if unseen else 0.0

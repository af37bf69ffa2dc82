"""The pseudo-inverse of a matrix of unit rows, by the eigenvalues of their inner products.

In float64 on the CPU, of the size of the number of peers: cost does not depend on the model, and
nothing is decided by a library's default cut-off (0.28 in float32 for a large layer).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Spectrum"]


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """What of K = U U^T stands above the tolerance; U has unit rows.

    Attributes:
        values: eigenvalues that are kept, falling, (rank,).
        vectors: theirs, (m, rank).
    """

    values: Tensor
    vectors: Tensor

    @staticmethod
    def of(gram: Tensor, tol: float) -> "Spectrum":
        """Take apart inner products of unit rows, (m, m) with m >= 1.

        Args:
            gram: K.
            tol: singular values of U below this share of the largest are taken as zero.
        """
        values, vectors = torch.linalg.eigh(gram)
        held = values > tol**2 * values[-1]
        return Spectrum(values[held].flip(0), vectors[:, held].flip(1))

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def conditioning(self) -> float:
        """Smallest over largest singular value of those kept, in (0, 1]."""
        return float((self.values[-1] / self.values[0]).sqrt())

    def solve(self, targets: Tensor) -> Tensor:
        """K^+ targets: weights of the rows in the shortest g with U g nearest to `targets`."""
        return self.vectors @ ((self.vectors.T @ targets) / self.values)

    def within_reach(self, targets: Tensor) -> Tensor:
        """U U^+ targets: the nearest to `targets` that U g can be."""
        return self.vectors @ (self.vectors.T @ targets)

"""Prototypes: one vector of features for each class, as extras beside the parameters.

Solvers send what their features are, mixers send back what features shall be pulled to. Both speak
under the names that stand here. Letters: C classes, D width of the features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from protocol.errors import LayoutError
from protocol.params import Params

__all__ = ["COUNTS", "MEANS", "SQUARES", "Prototypes"]

MEANS, COUNTS, SQUARES = "prototypes", "counts", "squares"  # names of extras

_TINY = 1e-300  # where all weights of a class are zero, so are their shares


@dataclass(frozen=True, slots=True, eq=False)
class Prototypes:
    means: Tensor  # (C, D), of the dtype of the classifier; zero for a class without any
    counts: Tensor  # (C,) int64: examples behind each, or peers; 0 says that there is none
    squares: Tensor  # (C,) mean squared length of the features, float32 at least

    @staticmethod
    def none(weight: Tensor) -> "Prototypes":
        """No class has one yet.

        Args:
            weight: of the classifier, (C, D).
        """
        counts = torch.zeros(len(weight), dtype=torch.int64, device=weight.device)
        return Prototypes(torch.zeros_like(weight), counts, _wide(weight.new_zeros(len(weight))))

    @staticmethod
    def read(extras: Params) -> "Prototypes":
        """The inverse of `extras`; without squares, they are zero.

        Raises:
            LayoutError: they do not hold prototypes.
        """
        if not {MEANS, COUNTS} <= extras.keys():
            raise LayoutError(
                f"extras {', '.join(extras) or 'without a tensor'} hold no prototypes"
            )
        means = extras[MEANS]
        squares = extras.get(SQUARES, _wide(means.new_zeros(len(means))))
        return Prototypes(means, extras[COUNTS], squares)

    @staticmethod
    def averaged(sent: Sequence["Prototypes"], weights: Tensor) -> "Prototypes":
        """Mean of each class; its count is the number of those that weigh anything.

        Args:
            sent: P of them, at least one, in order of sender.
            weights: (P, C) float64, >= 0; a class that nobody weighs in has no prototype.
        """
        shares = weights / weights.sum(dim=0).clamp(min=_TINY)
        means = torch.einsum("pc,pcd->cd", shares, torch.stack([p.means.double() for p in sent]))
        none = Prototypes.none(sent[0].means)
        return replace(none, means=means.to(none.means.dtype), counts=(weights > 0.0).sum(dim=0))

    def extras(self, *, squares: bool = False) -> Params:
        plain = {MEANS: self.means, COUNTS: self.counts}
        return {**plain, SQUARES: self.squares} if squares else plain


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

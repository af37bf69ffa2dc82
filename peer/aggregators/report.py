"""What CRAFT says of itself: plain numbers, by group of layers and for the whole model.

Alignments are measured on the step that was taken, after any scaling and projection; nothing is
concluded from the equations that the step was meant to solve.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from peer.aggregators.alignment import Solution
from peer.aggregators.conflict import num_opposed
from protocol.params import Params, norm

__all__ = ["GroupStep", "told_of_all", "told_of_group"]


@dataclass(frozen=True, slots=True, eq=False)
class GroupStep:
    """The step of one group of layers, before lr.

    Attributes:
        factor: by which the solution was scaled to the step; of any sign.
        gains: inner products of the updates with the step, (m,), zero where one is not usable.
        capped: `max_norm` has acted.
    """

    direction: Params
    solution: Solution
    factor: float
    gains: Tensor
    capped: bool

    @property
    def missed(self) -> Tensor:
        """What the unscaled step lacks to the targets, times the updates' lengths: (m,)."""
        return self.solution.targets * self.solution.lengths - self.gains / (self.factor or 1.0)


def told_of_group(step: GroupStep) -> Mapping[str, float]:
    """Evidence of one group.

    `largest_residual` is that of U g = rho before g was scaled; all else is of the step itself.
    """
    solution, size = step.solution, norm(step.direction)
    usable = solution.usable
    return {
        "updates_used": float(usable.sum()),
        "rank": float(solution.rank),
        "conditioning": solution.conditioning,
        "infeasible": float(solution.infeasible),
        "norm": size,
        "capped": float(step.capped),
        "share_of_reference": solution.reference_share,
        **_agreement(solution.lengths[usable], step.gains[usable], step.missed[usable], size),
    }


def told_of_all(steps: Sequence[GroupStep], policy: str) -> Mapping[str, float]:
    """Evidence of the round: the whole model's alignments, and how many groups are in trouble.

    `conflict_free` needs every target within reach, and no peer moved against in any group nor as
    a whole. `fallback_...` names the policy, and in how many groups it had to act.
    """
    lengths = torch.stack([step.solution.lengths for step in steps]).square().sum(dim=0).sqrt()
    usable = lengths > 0.0
    gains = torch.stack([step.gains for step in steps]).sum(dim=0)[usable]
    missed = torch.stack([step.missed for step in steps]).sum(dim=0)[usable]
    told = [told_of_group(step) for step in steps]
    size = math.hypot(*(group["norm"] for group in told))
    whole = _agreement(lengths[usable], gains, missed, size)
    infeasible = sum(group["infeasible"] for group in told)
    in_conflict = whole["in_conflict"] + sum(group["in_conflict"] for group in told)
    return {
        "updates_used": float(usable.sum()),
        **whole,
        "conflict_free": float(infeasible == 0.0 and in_conflict == 0.0),
        "groups": float(len(told)),
        "infeasible_groups": infeasible,
        f"fallback_{policy}": infeasible,
        "capped_groups": sum(group["capped"] for group in told),
        "single_groups": float(sum(group["updates_used"] == 1.0 for group in told)),
        "empty_groups": float(sum(group["updates_used"] == 0.0 for group in told)),
    }


def _agreement(lengths: Tensor, gains: Tensor, missed: Tensor, size: float) -> dict[str, float]:
    """How a step of norm `size` suits the updates of these lengths; zeros where there is none."""
    if not len(lengths):
        return {"largest_residual": 0.0, "smallest_alignment": 0.0, "in_conflict": 0.0}
    return {
        "largest_residual": float((missed / lengths).abs().max()),
        "smallest_alignment": float((gains / lengths).min()),
        "in_conflict": float(num_opposed(gains, lengths, size)),
    }

"""ConFIG: one direction at equal angles to all updates, as long as their projections on it.

Liu et al., 2024, arXiv 2408.11104, on the whole model: with unit updates U, x = U^+ 1, and the step
is the sum of the updates projected onto x. The paper is on losses of one network and its sum grows
with their number; here the mean is the default (`length = sum` is the paper's). Where no direction
has a component along every update (two opposite ones), the start stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.aggregators.conflict import conflicts
from peer.aggregators.spectrum import Spectrum
from peer.aggregators.step import stepped
from peer.aggregators.updates import Updates
from peer.options.aggregators import ConFigOptions
from protocol.ids import PeerId
from protocol.params import NO_STATE, State
from protocol.round import Aggregated, Contribution, Start

__all__ = ["ConFig"]

_NOWHERE = 1e-9  # a shorter x is rounding: where all targets can be met it is at least 1 long


@dataclass(frozen=True, slots=True)
class ConFig:
    options: ConFigOptions = field(default_factory=ConFigOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        updates = Updates.of(start, contributions)
        weights, notes = self._weights(updates.gram())
        direction = updates.combine(weights)
        lr = self.options.lr
        moved = stepped(start, direction, contributions, lr=lr)
        return Aggregated(moved, notes={**conflicts(updates, direction, lr), **notes}), state

    def _weights(self, gram: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Weights of the updates in the step (m,), and how well they agree."""
        lengths = gram.diagonal().sqrt()
        usable = lengths > 0.0
        weights = torch.zeros_like(lengths)
        if not usable.any():
            return weights, {}
        lengths = lengths[usable]
        unit = gram[usable][:, usable] / torch.outer(lengths, lengths)
        spectrum = Spectrum.of(unit, self.options.tol)
        ones = torch.ones_like(lengths)
        x = spectrum.solve(ones)
        along = unit @ x  # inner products of the unit updates with x
        size = torch.dot(x, along).clamp(min=0.0).sqrt()
        notes = {
            "rank": float(spectrum.rank),
            "conditioning": spectrum.conditioning,
            "largest_residual": (ones - spectrum.within_reach(ones)).abs().max().item(),
        }
        if size > _NOWHERE:
            total = torch.dot(lengths, along / size)
            share = total / len(usable) if self.options.length == "mean" else total
            weights[usable] = share * x / (size * lengths)
        return weights, notes

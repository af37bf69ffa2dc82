"""FedFV: the mean of updates after each was freed of its conflicts with the others.

Wang et al., 2021, arXiv 2104.14937, as in the authors' code. Updates of the peers with the largest
losses stay whole (`alpha`); each other one loses, in order of loss, its part against every update
that it still opposes. The mean of these then loses its part against the updates of the last `tau`
rounds that it opposes, oldest first, and is made as long as the plain mean. Peers weigh the same.
The current round counts among the `tau`, but not before `tau` rounds have passed. `alpha = 1` with
`tau = 0` is the uniform mean. Everything is done on inner products: the model is read three times.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.aggregators import clock
from peer.aggregators.conflict import conflicts
from peer.aggregators.history import History
from peer.aggregators.step import evenly, kept, stepped
from peer.aggregators.updates import Updates
from peer.options.aggregators import FedFVOptions
from protocol.ids import PeerId
from protocol.params import Params, State
from protocol.round import Aggregated, Contribution, Start

__all__ = ["FedFV"]

_NOWHERE = 1e-7  # of the longest update: a mean shorter than that is rounding


@dataclass(frozen=True, slots=True)
class FedFV:
    options: FedFVOptions = field(default_factory=FedFVOptions)

    def init(self, start: Start) -> State:
        return {clock.SECTION: clock.ticked(0)}

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        round_no, tau = clock.rounds(state), self.options.tau
        present = [c.sender for c in contributions]
        history = History.read(state)
        absent = history.of(set(roster).difference(present), since=round_no - tau + 1)
        updates = Updates.of(start, contributions, list(absent.directions.values()))
        losses = [c.trained.start_loss for c in contributions]
        gram = updates.gram()
        weights = self._weights(gram, losses, round_no, absent)
        direction = updates.combine(weights)
        moved = stepped(start, direction, contributions)
        if tau > 1:
            history = history.joined(_rows(updates, present, start), round_no)
        remembered = history.of(roster, since=round_no - tau + 2).sections()
        pairs = float((gram[: len(present), : len(present)].triu(1) < 0.0).sum())
        notes = {**conflicts(updates, direction), "conflicting_pairs": pairs}
        return Aggregated(moved, notes=notes), {
            clock.SECTION: clock.ticked(round_no + 1),
            **remembered,
        }

    def _weights(
        self, gram: Tensor, losses: Sequence[float], round_no: int, absent: History
    ) -> Tensor:
        """Weights of all rows in the step."""
        present = len(losses)
        now = gram[:present, :present]
        freed = _freed_of_each_other(now, losses, self.options.alpha)
        weights = torch.zeros(len(gram), dtype=torch.float64)
        weights[:present] = freed.mean(dim=0)
        if round_no >= self.options.tau:
            ages = [0] * present + [round_no - last for last in absent.rounds.values()]
            weights = _freed_of_past(gram, weights, torch.tensor(ages), self.options.tau)
        size, plain = _size(gram, weights), _size(now, evenly(present))
        is_somewhere = size > _NOWHERE * now.diagonal().max().sqrt()
        weights = weights * (plain / size if is_somewhere else 0.0)
        return torch.where(gram.diagonal() > 0.0, weights, 0.0)


def _freed_of_each_other(gram: Tensor, losses: Sequence[float], alpha: float) -> Tensor:
    """Updates without their conflicts, as weights of the updates as they came: (m, m)."""
    freed = torch.eye(len(gram), dtype=torch.float64)
    order = sorted(range(len(losses)), key=losses.__getitem__)
    whole = order[math.ceil((len(order) - 1) * (1.0 - alpha)) :] if alpha > 0.0 else []
    for own in sorted(set(order) - set(whole)):
        for other in order:
            pull = torch.dot(gram[other], freed[own])
            if other != own and pull < 0.0:
                freed[own, other] -= pull / gram[other, other]
    return freed


def _freed_of_past(gram: Tensor, weights: Tensor, ages: Tensor, tau: int) -> Tensor:
    """The mean, round by round without its part against the sum of the updates that it opposes."""
    for age in reversed(range(tau)):
        pulls = gram @ weights
        opposed = ((ages == age) & (pulls < 0.0)).double()
        against, square = torch.dot(opposed, pulls), torch.dot(opposed, gram @ opposed)
        if square > 0.0:
            weights = weights - against / square * opposed
    return weights


def _size(gram: Tensor, weights: Tensor) -> float:
    """Norm of the sum of rows by weights."""
    return float(torch.dot(weights, gram @ weights).clamp(min=0.0).sqrt())


def _rows(updates: Updates, present: Sequence[PeerId], start: Start) -> dict[PeerId, Params]:
    """Each present peer's update as state keeps it."""
    alone = torch.eye(len(updates), dtype=torch.float64)
    return {p: kept(updates.combine(alone[i]), start) for i, p in enumerate(present)}

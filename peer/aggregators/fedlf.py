"""FedLF: per tensor, the shortest step that helps every peer, those away too, and evens losses.

Pan et al., 2024, ICLR, as in the authors' code. For each tensor the present peers' gradients, the
last ones of peers that are away, and a fairness direction are made equally long; the step is the
point of their hull that is nearest to the origin, so no one of them is opposed. The fairness
direction turns the vector of losses towards equal ones. The whole is made as long as the mean
gradient; where rounding then opposes a gradient, it is halved or left at its own length.

The authors take one full gradient at the start; updates over the peers' step size stand for it, so
one local step of the whole data is the paper's. Letters: R gradients, the present peers' m first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.aggregators import clock
from peer.aggregators.conflict import conflicts
from peer.aggregators.convex import nearest_to_origin
from peer.aggregators.history import History
from peer.aggregators.step import kept, stepped
from peer.aggregators.updates import Updates
from peer.options.entry import NoOptions
from protocol.ids import PeerId
from protocol.params import Params, State
from protocol.round import Aggregated, Contribution, Start

__all__ = ["FedLF"]

_OPPOSED = 1e-6  # an inner product below minus that opposes a gradient (authors' tolerance)
_EVEN = 1e-9  # losses that deviate less from equal ones leave no fairness direction
_NOWHERE = 1e-7  # of the mean length: a direction shorter than that is rounding


@dataclass(frozen=True, slots=True)
class FedLF:
    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return {clock.SECTION: clock.ticked(0)}

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        round_no, present = clock.rounds(state), [c.sender for c in contributions]
        history = History.read(state).of(roster)
        away = _away(history, present, round_no)
        rates = torch.tensor([c.trained.lr for c in contributions], dtype=torch.float64)
        scales = torch.cat([1.0 / rates, torch.ones(len(away.rounds), dtype=torch.float64)])
        updates = Updates.of(start, contributions, list(away.directions.values()))
        grams = {n: updates.gram([n]) * torch.outer(scales, scales) for n in start.params}
        fair = _towards_even([c.trained.start_loss for c in contributions])
        weights = {name: _shared_descent(gram, fair) for name, gram in grams.items()}
        factor = _length(grams, weights, len(present))
        direction: dict[str, Tensor] = {}
        for name, found in weights.items():
            direction |= updates.combine(rates.mean() * factor * scales * found, [name])
        moved = stepped(start, direction, contributions)
        notes = {**conflicts(updates, direction), "away": float(len(away.rounds))}
        history = history.joined(_gradients(updates, scales, present, start), round_no)
        return Aggregated(moved, notes=notes), {
            clock.SECTION: clock.ticked(round_no + 1),
            **history.of(roster).sections(),
        }


def _away(history: History, present: Sequence[PeerId], round_no: int) -> History:
    """Who is remembered: those away for no more rounds than all known peers would take by turns."""
    turns = len(history.rounds) // len(present)
    others = set(history.rounds).difference(present) if len(history.rounds) > len(present) else ()
    return history.of(others, since=round_no - turns)


def _towards_even(losses: Sequence[float]) -> Tensor:
    """Unit weights of gradients that turn the losses towards equal ones: (m,), or zero if they are.

    With l the losses and p equal ones, both of unit length: (l.p) l - p.
    """
    length = math.hypot(*losses) or 1.0
    now = torch.tensor([loss / length for loss in losses], dtype=torch.float64)
    equal = torch.full_like(now, 1.0 / math.sqrt(len(now)))
    turn = torch.dot(now, equal) * now - equal
    sine = torch.linalg.vector_norm(turn)
    return turn / sine if bool(now.any()) and sine > _EVEN else torch.zeros_like(turn)


def _shared_descent(gram: Tensor, fair: Tensor) -> Tensor:
    """Weights of the gradients of one tensor in its step: (R,).

    Args:
        gram: inner products of the gradients, (R, R).
        fair: `_towards_even`, (m,).
    """
    lengths = gram.diagonal().sqrt()
    usable = lengths > 0.0
    length = lengths[: len(fair)].mean()
    if length == 0.0:
        return torch.zeros_like(lengths)
    stretch = torch.where(usable, length / lengths, 0.0)
    spans = torch.diag(stretch)[usable]  # rows are weights of the gradients
    turn = torch.zeros_like(lengths)
    turn[: len(fair)] = fair * stretch[: len(fair)]
    size = torch.dot(turn, gram @ turn).clamp(min=0.0).sqrt()
    if size > _NOWHERE * length:
        spans = torch.cat([spans, (turn * length / size).unsqueeze(0)])
    return nearest_to_origin(spans @ gram @ spans.T) @ spans


def _length(grams: Mapping[str, Tensor], weights: Mapping[str, Tensor], present: int) -> float:
    """Factor that makes the step as long as the mean gradient, or as long as opposes nobody."""
    total = torch.stack(list(grams.values())).sum(dim=0)
    pulls = torch.stack([gram @ weights[name] for name, gram in grams.items()]).sum(dim=0)
    squares = [weights[name] @ gram @ weights[name] for name, gram in grams.items()]
    size = math.sqrt(max(0.0, float(sum(squares))))
    plain = math.sqrt(max(0.0, float(total[:present, :present].mean())))
    if size <= _NOWHERE * float(total.diagonal().max().sqrt()):
        return 0.0
    worst = float(pulls[:present].min())
    factor = plain / size
    while worst * factor < -_OPPOSED and factor > 2.0:
        factor /= 2.0
    return 1.0 if worst * factor < -_OPPOSED else factor


def _gradients(
    updates: Updates, scales: Tensor, present: Sequence[PeerId], start: Start
) -> dict[PeerId, Params]:
    """Each present peer's gradient as state keeps it."""
    alone = torch.diag(scales)
    return {p: kept(updates.combine(alone[i]), start) for i, p in enumerate(present)}

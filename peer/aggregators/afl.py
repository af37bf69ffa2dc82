"""AFL: weigh the peers for the mixture of their data on which the model does worst.

Mohri et al., 2019, arXiv 1902.00146. The start moves along the updates mixed by lambda; lambda then
follows the losses of the start, back onto the simplex. Updates stand for gradients times the peers'
own step size, so `lr = 1` is a step as long as theirs.

The method is defined for full participation. Where peers are absent, lambda is projected over those
present and the round is noted as `outside_definition`; who comes back has the weight that it left
with. The paper's result is the mean of the models of all rounds: the state has it as `average`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.aggregators import clock
from peer.aggregators.conflict import conflicts
from peer.aggregators.convex import onto_simplex
from peer.aggregators.step import stepped, unmoved
from peer.aggregators.updates import Updates
from peer.options.aggregators import AflOptions
from protocol.ids import PeerId
from protocol.params import NOTHING, Params, State, pairwise
from protocol.round import Aggregated, Contribution, Start

__all__ = ["Afl"]


@dataclass(frozen=True, slots=True)
class Afl:
    options: AflOptions = field(default_factory=AflOptions)

    def init(self, start: Start) -> State:
        return {"average": unmoved(start), clock.SECTION: clock.ticked(0)}

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        options, present = self.options, [c.sender for c in contributions]
        known = _weights(state.get("lambda", NOTHING), sorted({*roster, *present}))
        weights = onto_simplex(torch.stack([known[peer] for peer in present]))
        updates = Updates.of(start, contributions)
        direction = updates.combine(weights)
        moved = stepped(start, direction, contributions, lr=options.lr)
        losses = torch.tensor([c.trained.start_loss for c in contributions], dtype=torch.float64)
        follow = onto_simplex(weights + options.lambda_lr * losses)
        rounds = clock.rounds(state) + 1
        notes = {
            **conflicts(updates, direction, options.lr),
            "largest_weight": weights.max().item(),
            "outside_definition": float(len(present) < len(known)),
        }
        return Aggregated(moved, notes=notes), {
            "lambda": {**known, **dict(zip(present, follow.unbind(), strict=True))},
            "average": _averaged(state["average"], moved.params, rounds),
            clock.SECTION: clock.ticked(rounds),
        }


def _weights(known: Params, peers: Sequence[PeerId]) -> Mapping[str, Tensor]:
    """The weight of each peer; of one that is new, as in the first round."""
    new = torch.tensor(1.0 / len(peers), dtype=torch.float64)
    return {peer: known.get(peer, new) for peer in peers}


def _averaged(mean: Params, params: Params, rounds: int) -> Params:
    """The mean of `rounds` models, of which `params` is the last."""
    return pairwise(lambda old, new: old.lerp(new.to(old.dtype), 1.0 / rounds), mean, params)

"""CRAFT: per group of layers, the step nearest to the last that advances each peer by its share.

Wang et al., 2026, arXiv 2605.21317; the algebra is in `alignment`. What one should know of it:

* With `length = paper` the step does not know how long the updates are: every group moves by about
  lr whatever the peers' step size, so only `schedule` makes steps smaller over time. It is short
  where peers agree and long where they conflict, up to `max_norm`. The other lengths are
  departures: `projection` is ConFIG's rule with the peers' shares, `mean-norm` the mean update's.
* Targets are met, not exceeded: where the reference serves all peers better, that is taken away.
* Where targets contradict each other (opposite updates; equal ones with unequal shares; more peers
  than parameters) no step meets them. `policy` says what to do, and the report that it was done.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from peer.aggregators import clock
from peer.aggregators.alignment import Solution, solve
from peer.aggregators.confine import confined, weight_rows
from peer.aggregators.groups import layer_groups
from peer.aggregators.report import GroupStep, told_of_all, told_of_group
from peer.aggregators.step import kept, stepped, unmoved
from peer.aggregators.updates import Updates
from peer.options.aggregators import CraftOptions
from protocol.ids import PeerId
from protocol.params import State, norm, scale
from protocol.round import Aggregated, Contribution, Start

__all__ = ["Craft"]

_NOWHERE = 1e-9  # a shorter step is rounding: one that meets its targets is at least 1/m long


@dataclass(frozen=True, slots=True)
class Craft:
    """Conflict-resolved aggregation; each group's last step is carried over as its reference.

    Attributes:
        rows: for `project`: weights with rows and the axis of these; None guesses from names and
            shapes, which `confine.weight_rows` tells the limits of.
    """

    options: CraftOptions = field(default_factory=CraftOptions)
    rows: Mapping[str, int] | None = None

    def fitted(self, rows: Mapping[str, int]) -> "Craft":
        return replace(self, rows=rows)

    def init(self, start: Start) -> State:
        return {"memory": unmoved(start), clock.SECTION: clock.ticked(0)}

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        rounds = clock.rounds(state)
        updates = Updates.of(start, contributions, [state["memory"]])
        counts = [c.trained.num_examples for c in contributions]
        examples = torch.tensor(counts, dtype=torch.float64)
        groups = {
            group: self._step(updates, names, examples)
            for group, names in layer_groups(start.params, self.options.groups).items()
        }
        direction = {n: t for group in groups.values() for n, t in group.direction.items()}
        lr = self._lr(rounds)
        notes = {"norm": lr * norm(direction), "lr": lr}
        aggregated = Aggregated(
            stepped(start, direction, contributions, lr=lr),
            groups={name: told_of_group(group) for name, group in groups.items()},
            notes={**notes, **told_of_all(list(groups.values()), self.options.policy)},
        )
        memory = kept(direction, start)
        return aggregated, {"memory": memory, clock.SECTION: clock.ticked(rounds + 1)}

    def _step(self, updates: Updates, names: Sequence[str], examples: torch.Tensor) -> GroupStep:
        solution = solve(updates.gram(names), examples, self.options)
        found = updates.combine(solution.weights, names)
        if self.options.project == "fedconst":
            rows = weight_rows(updates.start) if self.rows is None else self.rows
            found = confined(found, updates.start, rows)
        size = norm(found)
        gains = torch.where(solution.usable, updates.along(found)[:-1], 0.0)
        factor = self._factor(size, gains, solution) if size > _NOWHERE else 0.0
        capped = self.options.length == "paper" and size > self.options.max_norm
        return GroupStep(scale(found, factor), solution, factor, factor * gains, capped)

    def _factor(self, size: float, gains: torch.Tensor, solution: Solution) -> float:
        """By what to multiply a solution of norm `size`, with inner products `gains`."""
        if self.options.length == "projection":  # (sum of rho_i g_i.u) u, u along the solution
            return float(solution.targets @ gains) / size**2
        if self.options.length == "mean-norm":
            return float(solution.targets @ solution.lengths) / size
        return min(1.0, self.options.max_norm / size)

    def _lr(self, rounds: int) -> float:
        """Step size after so many rounds."""
        options = self.options
        if options.schedule == "inverse-sqrt":
            return options.lr / math.sqrt(1.0 + rounds / options.decay_rounds)
        if options.schedule == "step":
            return options.lr * float(options.decay ** (rounds // options.decay_rounds))
        return options.lr

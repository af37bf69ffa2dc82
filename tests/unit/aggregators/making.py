"""Rounds for tests of aggregators: a start, updates given as numbers, and what comes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from peer.aggregators.base import Aggregator
from protocol.ids import PeerId
from protocol.params import Params, State, sub
from protocol.round import Aggregated, Contribution, Start, Trained

ROSTER = tuple(PeerId(name) for name in "abcdefghijklmnopqrstuvwxyz")

Numbers = Sequence[float] | Sequence[Sequence[float]] | Tensor


def vector(numbers: Numbers) -> Tensor:
    return torch.as_tensor(numbers, dtype=torch.float64)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sent(sender: str, trained: Params, **evidence: Any) -> Contribution:
    """What one peer sends; one example, one step and a step size of 1 if nothing is said."""
    facts: Mapping[str, Any] = {"num_examples": 1, "num_steps": 1, "lr": 1.0, **evidence}
    return Contribution(
        sender=PeerId(sender),
        round_no=1,
        base=b"",
        degree=0,
        trained=Trained(params=trained, **facts),
    )


def arrived(
    start: Params, updates: Sequence[Mapping[str, Numbers]], **each: Sequence[Any]
) -> list[Contribution]:
    """One contribution for each update; `each` has a value of the evidence for every one."""
    return [
        sent(
            ROSTER[i],
            {name: tensor - vector(update[name]) for name, tensor in start.items()},
            **{key: values[i] for key, values in each.items()},
        )
        for i, update in enumerate(updates)
    ]


def one_tensor(
    updates: Sequence[Numbers], **each: Sequence[Any]
) -> tuple[Start, list[Contribution]]:
    """A round of a model that is one vector `w`, at zero."""
    start = {"w": torch.zeros_like(vector(updates[0]))}
    return Start(start), arrived(start, [{"w": update} for update in updates], **each)


def aggregate(
    aggregator: Aggregator,
    start: Start,
    contributions: Sequence[Contribution],
    state: State | None = None,
) -> tuple[Aggregated, State]:
    """One round with everybody present, from no state if none is given."""
    state = aggregator.init(start) if state is None else state
    return aggregator.aggregate(state, start, contributions, [c.sender for c in contributions])


def step_of(aggregator: Aggregator, updates: Sequence[Numbers], **each: Sequence[Any]) -> Tensor:
    """What is taken from a model of one vector in the first round."""
    start, contributions = one_tensor(updates, **each)
    made, _ = aggregate(aggregator, start, contributions)
    return moved(start, made)["w"]


def moved(start: Start, made: Aggregated) -> Params:
    """Start minus result, as updates are."""
    return sub(start.params, made.start.params)

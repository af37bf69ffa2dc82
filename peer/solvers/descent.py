"""The one training loop. Solvers differ in the slope they follow and the set they stay in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias

import torch
from torch import Tensor

from peer.options.methods import DescentOptions
from peer.solvers.base import Batch, Progress, Task
from peer.solvers.optimiser import Momentum, Optimiser
from protocol.params import Params
from protocol.round import Start, Trained

__all__ = [
    "Descent",
    "Passes",
    "Slope",
    "anywhere",
    "descend",
    "gradient",
    "leaves",
    "shuffled",
    "slope",
]

# (task, params, buffers, batch) -> loss in nats (), gradient of the layout of params, new buffers
Slope: TypeAlias = Callable[[Task, Params, Params, Batch], tuple[Tensor, Params, Params]]
Passes: TypeAlias = Callable[[Task, int], Iterator[Batch]]  # (task, seed) -> `task.num_batches`


def slope(
    task: Task, params: Params, buffers: Params, batch: Batch
) -> tuple[Tensor, Params, Params]:
    """The plain gradient of the task's loss; zero for what the loss does not depend on."""
    here = leaves(params)
    loss, buffers = task.loss(here, buffers, batch)
    return loss.detach(), gradient(loss, here), buffers


def shuffled(task: Task, seed: int) -> Iterator[Batch]:
    """Every example once."""
    return task.batches(seed)


def leaves(params: Params) -> Params:
    """The same numbers, to take a gradient in."""
    return {name: tensor.detach().requires_grad_() for name, tensor in params.items()}


def gradient(value: Tensor, here: Params) -> Params:
    """Gradient of a scalar in `leaves`; zero for those that it does not depend on."""
    grads = torch.autograd.grad(value, list(here.values()), materialize_grads=True)
    return dict(zip(here, grads, strict=True))


def anywhere(params: Params) -> Params:
    """No set to stay in."""
    return params


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """How to go down."""

    optimiser: Optimiser
    epochs: int  # passes over the local data, >= 1
    follow: Slope = slope
    passes: Passes = shuffled  # the batches of one pass
    confine: Callable[[Params], Params] = anywhere  # back into the set, after every step

    @classmethod
    def of(
        cls, options: DescentOptions, follow: Slope = slope, *, passes: Passes = shuffled
    ) -> Self:
        """By SGD, with its momentum and as many passes as the options say."""
        return cls(optimiser=Momentum(options), epochs=options.epochs, follow=follow, passes=passes)


def descend(start: Start, task: Task, way: Descent, seed: int, progress: Progress) -> Trained:
    """Go down from `start`, with a fresh optimiser.

    Losses stay on the device until the end: reading one each step would make a GPU wait.
    """
    params, buffers = start.params, start.buffers
    state = way.optimiser.init(params)
    planned = way.epochs * task.num_batches
    losses: list[Tensor] = []
    for epoch in range(way.epochs):
        for batch in way.passes(task, seed + epoch):
            loss, grad, buffers = way.follow(task, params, buffers, batch)
            params, state = way.optimiser.step(state, params, grad)
            params = way.confine(params)
            losses.append(loss)
            progress(len(losses), planned)
    return Trained(
        params=params,
        buffers=buffers,
        num_examples=task.num_examples,
        num_steps=len(losses),
        nova_a=way.optimiser.weight_of_steps(len(losses)),
        lr=way.optimiser.lr,
        train_loss=torch.stack(losses).double().mean().item(),
        class_counts=task.class_counts,
    )

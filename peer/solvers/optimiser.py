"""Step rules: from a gradient to the next parameters.

The oracle of every rule here is the optimiser of the same name in `torch.optim`.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from peer.options.methods import DescentOptions
from protocol.params import NO_STATE, Params, State, add, pairwise, scale, zeros_like

__all__ = ["Adam", "Momentum", "Optimiser"]

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # Kingma and Ba, 2015, arXiv 1412.6980, Algorithm 1


class Optimiser(Protocol):
    """A step rule; it carries nothing from one round to the next (methods start fresh)."""

    @property
    def lr(self) -> float:
        """Step size, > 0."""

    def init(self, params: Params) -> State:
        """State before the first step."""

    def step(self, state: State, params: Params, grad: Params) -> tuple[Params, State]:
        """Next parameters and next state."""

    def weight_of_steps(self, num_steps: int) -> float:
        """FedNova's a_i: the sum of the weights with which gradients entered the parameters."""


@dataclass(frozen=True, slots=True)
class Momentum:
    """SGD with heavy-ball or Nesterov momentum; weight decay joins the gradient before it."""

    options: DescentOptions

    @property
    def lr(self) -> float:
        return self.options.lr

    def init(self, params: Params) -> State:
        return NO_STATE

    def step(self, state: State, params: Params, grad: Params) -> tuple[Params, State]:
        momentum, decay = self.options.momentum, self.options.weight_decay
        if decay:
            grad = add(grad, params, factor=decay)
        if not momentum:
            return add(params, grad, factor=-self.lr), state
        velocity = add(grad, state["velocity"], factor=momentum) if state else grad
        ahead = add(grad, velocity, factor=momentum) if self.options.nesterov else velocity
        return add(params, ahead, factor=-self.lr), {"velocity": velocity}

    def weight_of_steps(self, num_steps: int, pull: float = 0.0) -> float:
        """`num_steps` without momentum; Wang et al., 2020, arXiv 2007.07481, by its recursion.

        It is how far a gradient of 1 in every step leads, in units of the step size.

        Args:
            num_steps: >= 0.
            pull: strength of a pull to the start of the steps, FedProx's mu.
        """
        momentum, speed, way = self.options.momentum, 0.0, 0.0
        for _ in range(num_steps):
            force = 1.0 - self.lr * pull * way
            speed = momentum * speed + force
            way += force + momentum * speed if self.options.nesterov else speed
        return way


@dataclass(frozen=True, slots=True)
class Adam:
    """Steps scaled by running moments of the gradient; weight decay joins the gradient."""

    options: DescentOptions

    @property
    def lr(self) -> float:
        return self.options.lr

    def init(self, params: Params) -> State:
        zeros = zeros_like(params)
        return {"mean": zeros, "square": zeros, "clock": {"steps": torch.tensor(0)}}

    def step(self, state: State, params: Params, grad: Params) -> tuple[Params, State]:
        if self.options.weight_decay:
            grad = add(grad, params, factor=self.options.weight_decay)
        steps = int(state["clock"]["steps"]) + 1  # lies on the CPU: nothing waits for a GPU
        mean = add(scale(state["mean"], _BETA1), grad, factor=1.0 - _BETA1)
        square = pairwise(
            lambda old, g: (_BETA2 * old).addcmul_(g, g, value=1.0 - _BETA2), state["square"], grad
        )
        unbiased = math.sqrt(1.0 - _BETA2**steps)
        ahead = pairwise(lambda m, s: m / (s.sqrt() / unbiased + _EPS), mean, square)
        moved = add(params, ahead, factor=-self.lr / (1.0 - _BETA1**steps))
        return moved, {"mean": mean, "square": square, "clock": {"steps": torch.tensor(steps)}}

    def weight_of_steps(self, num_steps: int) -> float:
        """`num_steps`: every gradient is scaled to about the same length."""
        return float(num_steps)

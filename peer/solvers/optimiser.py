"""Step rules: from a gradient to the next parameters.

The oracle of every rule here is the optimiser of the same name in `torch.optim`.
"""

from dataclasses import dataclass
from typing import Protocol

from peer.options.methods import DescentOptions
from protocol.params import NO_STATE, Params, State, add

__all__ = ["Momentum", "Optimiser"]


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

    def weight_of_steps(self, num_steps: int) -> float:
        """`num_steps` without momentum; Wang et al., 2020, arXiv 2007.07481, by its recursion."""
        momentum, speed, way = self.options.momentum, 0.0, 0.0
        for _ in range(num_steps):
            speed = momentum * speed + 1.0
            way += 1.0 + momentum * speed if self.options.nesterov else speed
        return way

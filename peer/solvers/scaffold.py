"""SCAFFOLD, the local half: each peer cancels its own drift with a pair of control variates.

Karimireddy et al., 2020, arXiv 1910.06378, Algorithm 1 with option II. The peer's own variate c_i
is its state; the common one, c, arrives in the extras of the start, named like the parameters.
Gradients are followed less c_i and plus c, so that

    c_i <- c_i - c + (start - trained) / (lr * a)

is the mean of the round's gradients: a is the number of steps, and with momentum the sum of the
weights that gradients entered with. Weight decay counts as part of the loss. What is sent beside
the parameters, as extras of the same names, is how c_i has changed.

Where the start brings no c, c is c_i: that of a peer alone, whose steps are those of SGD. So it is
in round 1, in a round without the relay, and for layers that never leave the peer.
"""

from dataclasses import dataclass, field, replace

import torch

from peer.models.split import SplitModel
from peer.options.solvers import DescentOptions
from peer.solvers.base import Progress, Task
from peer.solvers.descent import Descent, descend
from peer.solvers.slopes import tilted
from protocol.params import Params, State, add, pairwise, sub
from protocol.round import Start, Trained

__all__ = ["Scaffold"]

_VARIATE = "variate"  # of the state


@dataclass(frozen=True, slots=True)
class Scaffold:
    options: DescentOptions = field(default_factory=DescentOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return {_VARIATE: _zeros(start.params)}

    def opening(self, model: SplitModel) -> Params:
        """No change: what is sent before any training."""
        return _zeros(model.start.params)

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        own = state[_VARIATE]
        common = {name: start.extras.get(name, variate) for name, variate in own.items()}
        drift = sub(common, own)
        follow = tilted(pairwise(lambda d, t: d.to(t.dtype), drift, start.params))
        way = Descent.of(self.options, follow)
        trained = descend(start, task, way, seed, progress)
        followed = pairwise(
            lambda s, t: (s - t).to(_wide(t)) / (trained.lr * trained.nova_a),
            start.params,
            trained.params,
        )
        change = sub(followed, common)
        return replace(trained, extras=change), {_VARIATE: add(own, change)}


def _zeros(params: Params) -> Params:
    return {name: torch.zeros_like(t, dtype=_wide(t)) for name, t in params.items()}


def _wide(tensor: torch.Tensor) -> torch.dtype:
    """Float32 at least: what is carried over many rounds would drown in bfloat16's rounding."""
    return torch.promote_types(tensor.dtype, torch.float32)

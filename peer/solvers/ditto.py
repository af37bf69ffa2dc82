"""Ditto: one model for all, and a personal one that is pulled to it.

Li et al., 2021, arXiv 2012.04221, Algorithm 2. On the same batches of each round

    w <- w - lr * grad F(w)                              from the start; this is what is sent
    v <- v - lr * (grad F(v) + lambda * (v - start))     from the last v; this is what is served

The start stays what was received, and v is touched only in rounds that the peer takes part in.
Neither stream sees the other, so one runs after the other. `lambda = 0` is training alone.
"""

from dataclasses import dataclass, field, replace

from peer.models.split import SplitModel
from peer.options.solvers import DittoOptions
from peer.solvers.base import Progress, Task
from peer.solvers.descent import Descent, descend
from peer.solvers.slopes import pulled
from protocol.params import NOTHING, State
from protocol.round import Start, Trained

__all__ = ["Ditto"]

_PARAMS, _BUFFERS = "personal", "personal_buffers"  # of the state


@dataclass(frozen=True, slots=True)
class Ditto:
    options: DittoOptions = field(default_factory=DittoOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return {_PARAMS: start.params, _BUFFERS: start.buffers}

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        descent = self.options.descent
        plain = Descent.of(descent)
        towards = replace(plain, follow=pulled(start.params, self.options.lam))
        steps = descent.epochs * task.num_batches
        first, second = _part(progress, 0, 2 * steps), _part(progress, steps, 2 * steps)
        common = descend(start, task, plain, seed, first)
        own = descend(
            Start(state[_PARAMS], state.get(_BUFFERS, NOTHING)), task, towards, seed, second
        )
        # running statistics are the personal model's own, for which they are named beside it
        served = {**own.params, **own.buffers}
        return replace(common, personal=served), {_PARAMS: own.params, _BUFFERS: own.buffers}


def _part(progress: Progress, before: int, planned: int) -> Progress:
    return lambda done, _: progress(before + done, planned)

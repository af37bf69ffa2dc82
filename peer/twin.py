"""A model that learns from the same batches as the one that a peer shares, and meets nobody.

It is what the peer would have alone: the run's solver, from the common initial model, in the rounds
that the peer trains in. Its state is a plain mapping of named tensors, as that of a solver.
"""

import time
from dataclasses import dataclass

from peer.admission import first_unfinite
from peer.bench import Bench
from peer.solvers.base import Progress, Solver, Task
from protocol.params import NOTHING, Params, State
from protocol.round import Start, Trained

__all__ = ["Twin", "halves", "silent", "train_twin"]

_PARAMS, _BUFFERS, _PERSONAL = "params", "buffers", "personal"  # of the state
_SOLVER = "solver."  # before what the solver keeps


@dataclass(frozen=True, slots=True)
class Twin:
    solver: Solver

    def init(self, start: Start) -> State:
        """State before the first round."""
        return _state(start.params, start.buffers, self.solver.init(start))

    def train(
        self, state: State, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        """Result and next state, as a solver's `train`, from where the twin's last round ended."""
        start = Start(state[_PARAMS], state.get(_BUFFERS, NOTHING))
        inner = {k.removeprefix(_SOLVER): v for k, v in state.items() if k.startswith(_SOLVER)}
        trained, inner_state = self.solver.train(inner, start, task, seed, progress)
        after = _state(trained.params, trained.buffers, inner_state)
        personal = {} if trained.personal is None else {_PERSONAL: trained.personal}
        return trained, {**after, **personal}

    def serves(self, state: State) -> tuple[Params, Params]:
        """Parameters and buffers of what the twin would serve: `personal`, where it has one."""
        params, buffers = state[_PARAMS], state.get(_BUFFERS, NOTHING)
        own = {**params, **buffers, **state.get(_PERSONAL, NOTHING)}
        return {n: own[n] for n in params}, {n: own[n] for n in buffers}


def train_twin(
    twin: Twin | None, state: State, bench: Bench, round_no: int, progress: Progress
) -> tuple[State, float]:
    """Train it on a round's batches; its next state, the old one if it diverged; seconds."""
    if twin is None:
        return state, 0.0
    began_s = time.perf_counter()
    with bench.seeded("train", round_no) as seed:
        trained, after = twin.train(state, bench.task, seed, progress)
    points = (trained.params, trained.buffers, trained.personal or {})
    sound = all(first_unfinite(point) is None for point in points)
    return after if sound else state, time.perf_counter() - began_s


def halves(progress: Progress) -> tuple[Progress, Progress]:
    """Tell two trainings of one length as one."""
    return (
        lambda done, planned: progress(done, 2 * planned),
        lambda done, planned: progress(planned + done, 2 * planned),
    )


def silent(done: int, planned: int) -> None:
    """A step of a training whose rounds are told instead."""


def _state(params: Params, buffers: Params, solver: State) -> State:
    kept = {_SOLVER + key: value for key, value in solver.items()}
    return {_PARAMS: params, _BUFFERS: buffers, **kept}

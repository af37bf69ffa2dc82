"""How long a step of training really takes here, for virtual durations that fit this machine."""

import time
from statistics import median

from peer.trainer import Trainer
from peer.work import Mix, Prepare, Train

__all__ = ["STEPS", "step_seconds"]

STEPS = 10  # that are timed, after one that warms up


class _Enough(Exception):  # noqa: N818 - no error: it ends a training that has been timed
    """As many steps as were wanted have been taken."""


class _Watch:
    """Notes how long each step took."""

    def __init__(self) -> None:
        self.durations_s: list[float] = []
        self._last_s = 0.0

    def start(self) -> None:
        self._last_s = time.perf_counter()

    def tick(self, _done: int, _planned: int) -> None:
        now_s = time.perf_counter()
        self.durations_s.append(now_s - self._last_s)
        self._last_s = now_s
        if len(self.durations_s) > STEPS:
            raise _Enough


def step_seconds(prepare: Prepare) -> float:
    """Take ten real steps of this peer's training; the median of their durations, in seconds.

    Raises:
        OperatorError: the shard, the model or a setting cannot be used.
    """
    trainer, watch = Trainer(), _Watch()
    trainer.carry_out(prepare, watch.tick)
    for round_no in range(1, STEPS + 2):  # a round may be as short as one step
        trainer.carry_out(Mix(round_no, 0, (), (prepare.peer,)), watch.tick)
        watch.start()
        try:
            trainer.carry_out(Train(round_no), watch.tick)
        except _Enough:
            break
    return median(watch.durations_s[1:] or watch.durations_s)

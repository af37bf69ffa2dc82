"""By which rule should a peer choose the model that it serves? One JSON line for each rule.

    python benchmarks/serving.py [--preset kinfolk] [--seed 0] [--rounds 40]      minutes of CPU

Simulates a preset on the demo's shards (eight peers, three kinds of digits, two camps) with
`serve.never_worse`, and keeps in every fourth round what each candidate makes of each validation
example, and its accuracy on the test split, which no rule sees. The rules then choose:

    trained, mixed, twin    always that one
    accuracy K              the most net wins, if these exceed K times sqrt(wins + defeats)
    loss K                  the least loss among those better by K standard errors of the difference
    accuracy 1, no points between

A line tells the mean test accuracy of what is served, over all kept rounds and over the last 40 %
of them; in which share of cases the twin would have been better on the test split; and by how much
on average, nobody counting for less than zero.
"""

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from _experiment import DEMO, Tables, simulated
from torch import Tensor

from peer.bench import Bench
from peer.serving import SHARES, Point, Served, between, serve
from protocol.params import Params
from protocol.round import Start, Trained

EVERY = 4  # rounds between two that are kept
LATE = 0.6  # of the rounds, from where on a case is late


@dataclass(frozen=True)
class Tried:
    """One candidate of one peer in one round."""

    name: str
    correct: Tensor  # (N,) bool, of the validation split
    losses: Tensor  # (N,) float64
    test_accuracy: float


@dataclass(frozen=True)
class Case:
    round_no: int
    tried: tuple[Tried, ...]  # what came out of the round first

    def of(self, name: str) -> Tried:
        return next(tried for tried in self.tried if tried.name == name)


class Spy:
    """Stands where a trainer chooses, and keeps what it sees."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._rounds = Counter[str]()

    def __call__(
        self, bench: Bench, start: Start, trained: Trained, twin: tuple[Params, Params]
    ) -> Served:
        self._rounds[bench.peer] += 1
        if self._rounds[bench.peer] % EVERY == 0:
            own = Point("trained", trained.params, trained.buffers)
            others = [Point("mixed", start.params, start.buffers), Point("twin", *twin)]
            points = [own, *others, *(between(own, o, s) for o in others for s in SHARES)]
            tried = tuple(_tried(bench, point) for point in points)
            self.cases.append(Case(self._rounds[bench.peer], tried))
        return serve(bench, start, trained, twin)


def _tried(bench: Bench, point: Point) -> Tried:
    found = bench.examine(point.params, point.buffers)
    if found.val is None:
        raise SystemExit("the shards have no validation split")
    return Tried(point.name, found.val.correct, found.val.losses, found.score.test_accuracy)


def by_accuracy(case: Case, errors: float, *, lines: bool = True) -> Tried:
    best, reached = case.tried[0], (0, 0.0)
    for other in case.tried[1:]:
        wins = int((other.correct & ~case.tried[0].correct).sum())
        defeats = int((case.tried[0].correct & ~other.correct).sum())
        rank = (wins - defeats, -other.losses.mean().item())
        passes = wins - defeats > errors * math.sqrt(wins + defeats)
        if passes and rank > reached and (lines or "+" not in other.name):
            best, reached = other, rank
    return best


def by_loss(case: Case, errors: float) -> Tried:
    best, reached = case.tried[0], 0.0
    for other in case.tried[1:]:
        gains = case.tried[0].losses - other.losses
        error = gains.std().item() / math.sqrt(len(gains))
        if (gain := gains.mean().item()) > max(errors * error, reached):
            best, reached = other, gain
    return best


def told(cases: list[Case], choose: Callable[[Case], Tried], rounds: int) -> Mapping[str, object]:
    served = [choose(case) for case in cases]
    scores = [tried.test_accuracy for tried in served]
    late = [s for c, s in zip(cases, scores, strict=True) if c.round_no > LATE * rounds]
    short = [
        max(0.0, case.of("twin").test_accuracy - score)
        for case, score in zip(cases, scores, strict=True)
    ]
    return {
        "test": round(sum(scores) / len(scores), 4),
        "late": round(sum(late) / len(late), 4),
        "twin_better": round(sum(s > 0.0 for s in short) / len(short), 3),
        "shortfall": round(sum(short) / len(short), 4),
        "served": dict(Counter(tried.name for tried in served).most_common()),
    }


RULES: Mapping[str, Callable[[Case], Tried]] = {
    "trained": lambda case: case.of("trained"),
    "mixed": lambda case: case.of("mixed"),
    "twin": lambda case: case.of("twin"),
    "accuracy 0": lambda case: by_accuracy(case, 0.0),
    "accuracy 1": lambda case: by_accuracy(case, 1.0),
    "accuracy 2": lambda case: by_accuracy(case, 2.0),
    "accuracy 1, no points between": lambda case: by_accuracy(case, 1.0, lines=False),
    "loss 0": lambda case: by_loss(case, 0.0),
    "loss 1": lambda case: by_loss(case, 1.0),
    "loss 2": lambda case: by_loss(case, 2.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="kinfolk")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=40, help="a multiple of 4")
    asked = parser.parse_args()
    spy = Spy()
    with tempfile.TemporaryDirectory() as name, patch("peer.trainer.serve", spy):
        tables: Tables = {
            **DEMO,
            "run": {"seed": asked.seed, "rounds": asked.rounds},
            "method": {"name": asked.preset},
            "serve": {"never_worse": True},
        }
        simulated(tables, Path(name) / "serving")
    for rule, choose in RULES.items():
        line = {"preset": asked.preset, "seed": asked.seed, "rule": rule, "cases": len(spy.cases)}
        print(json.dumps(line | dict(told(spy.cases, choose, asked.rounds))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

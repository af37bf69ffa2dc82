"""Every aggregator against a naive twin: the paper's lines in numpy, flat vectors, loops.

Three peers with quadratic losses train by plain gradient steps for three rounds. The twin's common
model and the aggregator's stay together to 1e-9.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from peer.aggregators.base import Aggregator
from peer.methods import AGGREGATORS
from peer.options.aggregators import AGGREGATORS as DECLARED
from peer.options.aggregators import (
    AflOptions,
    CraftOptions,
    FedAvgMOptions,
    FedFVOptions,
    QFedAvgOptions,
)
from protocol.params import NOTHING, Params
from protocol.round import Start
from tests.unit.aggregators.making import ROSTER, sent

Vector = NDArray[np.float64]

SHAPES: Mapping[str, tuple[int, ...]] = {"a.weight": (2, 3), "a.bias": (2,), "b.weight": (1, 3)}
TENSORS = [slice(0, 6), slice(6, 8), slice(8, 11)]
LAYERS = [slice(0, 8), slice(8, 11)]  # weight and bias of `a`, and `b`
SIZE = 11

LR = 0.1
CURVATURE = [0.5, 1.0, 2.0]
CENTRE = [np.linspace(-1.0, 1.0, SIZE), np.cos(np.arange(SIZE)), -np.linspace(-0.9, 1.2, SIZE)]
EXAMPLES = [30, 50, 20]
STEPS = [1, 4, 2]

ALL = [[0, 1, 2], [0, 1, 2], [0, 1, 2]]
SOME = [[0, 1], [2], [0, 1]]


@dataclass(frozen=True)
class Result:
    """What a peer has after a round."""

    peer: int
    trained: Vector
    update: Vector
    loss: float  # of the start
    change: Vector  # of its variate, option II of SCAFFOLD


def train(peer: int, start: Vector, own: Vector, common: Vector) -> Result:
    """Steps on 0.5 curvature ||w - centre||^2, corrected by variates (zero but for SCAFFOLD)."""
    w = start.copy()
    for _ in range(STEPS[peer]):
        w = w - LR * (CURVATURE[peer] * (w - CENTRE[peer]) - own + common)
    loss = 0.5 * CURVATURE[peer] * float(((start - CENTRE[peer]) ** 2).sum())
    return Result(peer, w, start - w, loss, -common + (start - w) / (STEPS[peer] * LR))


# from the model and what was trained to the next model and SCAFFOLD's common variate
Step = Callable[[Vector, Sequence[Result]], tuple[Vector, Vector | None]]


def travel(step: Step, rounds: Sequence[Sequence[int]]) -> list[Vector]:
    """The common model after each round."""
    w, common = np.zeros(SIZE), np.zeros(SIZE)
    own = [np.zeros(SIZE) for _ in CENTRE]
    path = []
    for present in rounds:
        results = [train(peer, w, own[peer], common) for peer in present]
        w, variate = step(w, results)
        if variate is not None:
            common = variate
            for r in results:
                own[r.peer] = own[r.peer] + r.change
        path.append(w)
    return path


def unflat(w: Vector) -> Params:
    return {
        name: torch.from_numpy(w[part].copy()).reshape(shape)
        for (name, shape), part in zip(SHAPES.items(), TENSORS, strict=True)
    }


def flat(params: Params) -> Vector:
    return np.concatenate([params[name].numpy().ravel() for name in SHAPES])


def by(aggregator: Aggregator) -> Step:
    """The aggregator as a step: packed as peers would send it."""
    state = aggregator.init(Start(unflat(np.zeros(SIZE))))

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, Vector | None]:
        nonlocal state
        contributions = [
            sent(
                ROSTER[r.peer],
                unflat(r.trained),
                num_examples=EXAMPLES[r.peer],
                num_steps=STEPS[r.peer],
                start_loss=r.loss,
                lr=LR,
                extras=unflat(r.change),
            )
            for r in results
        ]
        made, state = aggregator.aggregate(state, Start(unflat(w)), contributions, ROSTER[:3])
        extras = made.start.extras
        return flat(made.start.params), None if extras is NOTHING else flat(extras)

    return step


# --- the twins -----------------------------------------------------------------------------------


def share(results: Sequence[Result]) -> list[float]:
    total = sum(EXAMPLES[r.peer] for r in results)
    return [EXAMPLES[r.peer] / total for r in results]


def mean_update(results: Sequence[Result]) -> Vector:
    return np.asarray(sum(p * r.update for p, r in zip(share(results), results, strict=True)))


def fedavg() -> Step:
    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        out = np.zeros(SIZE)
        for p, r in zip(share(results), results, strict=True):
            out += p * r.trained
        return out, None

    return step


def fedavgm() -> Step:
    v = np.zeros(SIZE)

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        nonlocal v
        v = 0.5 * v + mean_update(results)
        return w - 0.7 * v, None

    return step


def fednova() -> Step:
    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        effective = sum(p * STEPS[r.peer] for p, r in zip(share(results), results, strict=True))
        out = w.copy()
        for p, r in zip(share(results), results, strict=True):
            out -= effective * p * r.update / STEPS[r.peer]
        return out, None

    return step


def simplex(v: Vector) -> Vector:
    """The nearest weights, by bisection on the threshold."""
    low, high = v.min() - 1.0, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(v - middle, 0.0).sum() > 1.0:
            low = middle
        else:
            high = middle
    return np.asarray(np.maximum(v - high, 0.0))


def afl() -> Step:
    weights = np.full(3, 1 / 3)

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        nonlocal weights
        gradients = [r.update / LR for r in results]
        out = w - 0.8 * LR * sum(weights[r.peer] * gradients[r.peer] for r in results)
        weights = simplex(weights + 0.3 * np.array([r.loss for r in results]))
        return out, None

    return step


def qfedavg() -> Step:
    q = 2.0

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        big_l = 1.0 / LR
        delta, h = np.zeros(SIZE), 0.0
        for r in results:
            loss, dw = r.loss + 1e-10, big_l * r.update
            delta += loss**q * dw
            h += q * loss ** (q - 1) * float(dw @ dw) + big_l * loss**q
        return w - delta / h, None

    return step


def fedfv(alpha: float, tau: int) -> Step:
    history: dict[int, tuple[int, Vector]] = {}
    t = -1

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        nonlocal t
        t += 1
        g = [r.update for r in results]
        for r in results:
            history[r.peer] = (t, r.update)
        order = [i for _, i in sorted((r.loss, i) for i, r in enumerate(results))]
        keep = order[math.ceil((len(order) - 1) * (1 - alpha)) :] if alpha else []
        freed = [u.copy() for u in g]
        for i in range(len(g)):
            if i in keep:
                continue
            for j in order:
                if j != i and g[j] @ freed[i] < 0:
                    freed[i] = freed[i] - (g[j] @ freed[i]) / (g[j] @ g[j]) * g[j]
        mean: Vector = np.mean(freed, axis=0)
        if t >= tau:
            for k in range(tau - 1, -1, -1):
                past = [u for last, u in history.values() if last == t - k and mean @ u < 0]
                if past:
                    con = np.sum(past, axis=0)
                    mean = mean - (mean @ con) / (con @ con) * con
        mean = mean / np.linalg.norm(mean) * np.linalg.norm(np.mean(g, axis=0))
        return w - mean, None

    return step


def nearest_of_hull(points: Sequence[Vector]) -> Vector:
    """Try every face: the nearest point of its flat counts where it lies inside."""
    best = min(points, key=lambda p: float(p @ p))
    for size in range(2, len(points) + 1):
        for face in combinations(points, size):
            edges = np.stack([p - face[0] for p in face[1:]], axis=1)
            along = np.linalg.lstsq(edges, -face[0], rcond=None)[0]
            found = face[0] + edges @ along
            if along.min() >= 0 and along.sum() <= 1 and found @ found < best @ best:
                best = found
    return best


def fedlf() -> Step:
    history: dict[int, tuple[int, Vector]] = {}
    t = -1

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        nonlocal t
        t += 1
        g = [r.update / LR for r in results]
        losses, prefer = np.array([r.loss for r in results]), np.ones(len(g)) / math.sqrt(len(g))
        size = np.linalg.norm(losses)
        h = (losses @ prefer) * losses / size**3 - prefer / size
        present, away = {r.peer for r in results}, []
        if len(history) > len(g):
            turns = len(history) // len(g)
            away = [u for i, (last, u) in history.items() if i not in present and t - last <= turns]
        d = np.zeros(SIZE)
        for part in TENSORS:
            mu = np.mean([np.linalg.norm(u[part]) for u in g])
            q = [u[part] / np.linalg.norm(u[part]) * mu for u in g]
            fair = sum(h[i] * q[i] for i in range(len(g)))
            fairs = [fair / np.linalg.norm(fair) * mu] if len(g) > 1 else []
            past = [u[part] / np.linalg.norm(u[part]) * mu for u in away]
            d[part] = nearest_of_hull([*q, *fairs, *past])
        d = d / np.linalg.norm(d) * np.linalg.norm(np.mean(g, axis=0))
        for r, u in zip(results, g, strict=True):
            history[r.peer] = (t, u)
        return w - LR * d, None

    return step


def config() -> Step:
    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        u = np.stack([r.update / np.linalg.norm(r.update) for r in results])
        x = np.linalg.pinv(u) @ np.ones(len(results))
        x = x / np.linalg.norm(x)
        length = sum(float(r.update @ x) for r in results)
        return w - length * x / len(results), None

    return step


def craft() -> Step:
    g = np.zeros(SIZE)

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        nonlocal g
        new = np.zeros(SIZE)
        for part in LAYERS:
            size = np.linalg.norm(g[part])
            ref = g[part] / size if size > 0 else np.zeros_like(g[part])
            u = np.stack([r.update[part] / np.linalg.norm(r.update[part]) for r in results])
            new[part] = ref + np.linalg.pinv(u) @ (np.array(share(results)) - u @ ref)
        g = new
        return w - 0.1 * g, None

    return step


def scaffold() -> Step:
    c = np.zeros(SIZE)

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, Vector]:
        nonlocal c
        out = w + np.mean([r.trained - w for r in results], axis=0)
        c = c + sum(r.change for r in results) / 3
        return out, c

    return step


def feddyn() -> Step:
    alpha, h = 0.05, np.zeros(SIZE)

    def step(w: Vector, results: Sequence[Result]) -> tuple[Vector, None]:
        nonlocal h
        h = h - alpha / 3 * sum(r.trained - w for r in results)
        return np.mean([r.trained for r in results], axis=0) - h / alpha, None

    return step


OPTIONS: Mapping[str, object] = {
    "craft": CraftOptions(max_norm=1e6),  # two of these peers agree so much that it would act
    "fedavgm": FedAvgMOptions(momentum=0.5, lr=0.7),
    "afl": AflOptions(lambda_lr=0.3, lr=0.8),
    "qfedavg": QFedAvgOptions(q=2.0),
    "fedfv": FedFVOptions(alpha=0.1, tau=1),
}
TWINS: Mapping[str, Callable[[], Step]] = {
    "afl": afl,
    "config": config,
    "craft": craft,
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "feddyn": feddyn,
    "fedfv": lambda: fedfv(alpha=0.1, tau=1),
    "fedlf": fedlf,
    "fednova": fednova,
    "qfedavg": qfedavg,
    "scaffold": scaffold,
}


def assert_one_path(ours: list[Vector], theirs: list[Vector]) -> None:
    assert np.abs(ours[-1]).max() > 0.01  # something was learnt
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9)


def test_every_aggregator_has_a_twin() -> None:
    assert sorted(TWINS) == sorted(AGGREGATORS)


@pytest.mark.parametrize("name", TWINS)
def test_three_rounds_of_all_are_those_of_the_twin(name: str) -> None:
    aggregator = AGGREGATORS[name](OPTIONS.get(name, DECLARED[name].options()))
    assert_one_path(travel(by(aggregator), ALL), travel(TWINS[name](), ALL))


@pytest.mark.parametrize("name", [name for name in TWINS if name != "afl"])
def test_three_rounds_of_some_are_those_of_the_twin(name: str) -> None:
    aggregator = AGGREGATORS[name](OPTIONS.get(name, DECLARED[name].options()))
    assert_one_path(travel(by(aggregator), SOME), travel(TWINS[name](), SOME))


@pytest.mark.parametrize("tau", [0, 1, 2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_fedfv_remembers_as_its_twin_does(alpha: float, tau: int) -> None:
    rounds = [[0, 1], [2], [0, 2], [1], [0, 1], [2]]
    aggregator = AGGREGATORS["fedfv"](FedFVOptions(alpha=alpha, tau=tau))
    assert_one_path(travel(by(aggregator), rounds), travel(fedfv(alpha, tau), rounds))

"""Two peers with tiny problems in float64, and what their naive twins are written in.

The model is softmax regression: one matrix with a row per class, the bias its last column, so that
every gradient of a twin is a line of numpy.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from peer.aggregators.base import Aggregator
from peer.examples import Examples
from peer.models.describe import describe
from peer.models.split import SplitModel
from peer.options.methods import TrainOptions
from peer.options.solvers import DescentOptions, SgdOptions
from peer.seeding import forked
from peer.solvers.base import Solver
from peer.solvers.sgd import Sgd
from peer.task import LocalTask
from protocol.ids import PeerId
from protocol.params import NO_STATE, Params, State, weighted_mean
from protocol.round import Contribution, Start, Trained
from tests.unit.methods.making import CPU, silent, small_model, small_task

Matrix = NDArray[np.float64]  # (classes, features + 1)
Batch = tuple[
    Matrix, NDArray[np.int64]
]  # (batch, features + 1) with a last column of ones; (batch,)

SIZES = (14, 9)  # examples of each peer
BATCH, FEATURES, CLASSES, ROUNDS = 4, 3, 4, 3


def float64(module: nn.Module, shape: tuple[int, ...], classes: int) -> SplitModel:
    return describe("small", module, shape, classes).to(CPU, torch.float64)


def regression() -> SplitModel:
    with forked(0):
        module = nn.Sequential(OrderedDict(head=nn.Linear(FEATURES, CLASSES)))
    return float64(module, (FEATURES,), CLASSES)


def two_convolutions(**layers: nn.Module) -> SplitModel:
    """6x6 images of one channel, by way of 4 channels to 6; further layers of the last stage."""
    with forked(0):
        body = OrderedDict(
            one=nn.Conv2d(1, 4, 3, padding=1),
            on=nn.ReLU(),
            two=nn.Conv2d(4, 6, 3),
            **layers,
            pool=nn.MaxPool2d(2),
            flat=nn.Flatten(),
        )
        net = nn.Sequential(OrderedDict(body=nn.Sequential(body), head=nn.Linear(24, 3)))
    return float64(net, (1, 6, 6), 3)


def tasks(model: SplitModel, sizes: Sequence[int] = SIZES) -> list[LocalTask]:
    """One for each peer; their data differ in size and in what they say."""
    made = []
    for peer, size in enumerate(sizes):
        chance = torch.Generator().manual_seed(peer)
        inputs = torch.randn(size, *model.input_shape, generator=chance, dtype=torch.float64)
        targets = torch.randint(model.num_classes, (size,), generator=chance)
        made.append(LocalTask(model, Examples(inputs, targets), TrainOptions(batch_size=BATCH)))
    return made


def seed_of(round_no: int, peer: int) -> int:
    return 10 * round_no + peer


@dataclass(frozen=True)
class Outcome:
    start: Start  # after the last round
    trained: list[Trained]  # of the last round, by peer
    states: list[State]


# (start, results of the round by peer) -> next start
Server = Callable[[Start, list[Trained]], Start]


def average(start: Start, results: list[Trained]) -> Start:
    """FedAvg, by samples."""
    return Start(
        weighted_mean((t.params, t.num_examples) for t in results),
        weighted_mean((t.buffers, t.num_examples) for t in results),
    )


def of_aggregator(aggregator: Aggregator, start: Start, peers: int) -> Server:
    """What an aggregator makes of the results, with what it remembers from round to round."""
    state: list[State] = [aggregator.init(start)]
    roster = [PeerId(str(peer)) for peer in range(peers)]

    def serve(start: Start, results: list[Trained]) -> Start:
        contributions = [
            Contribution(sender=name, round_no=1, base=b"", degree=1, trained=trained)
            for name, trained in zip(roster, results, strict=True)
        ]
        done, state[0] = aggregator.aggregate(state[0], start, contributions, roster)
        return done.start

    return serve


def beside_sgd(
    solver: Solver, descent: DescentOptions, norm_layer: str, *, size: int = 10
) -> tuple[Trained, Trained]:
    """One round of this solver on a small model, and of plain SGD on the same."""
    task = small_task(solver.adapt(small_model(norm_layer)), size=size)
    start = task.model.start
    ours, _ = solver.train(NO_STATE, start, task, 3, silent)
    plain, _ = Sgd(SgdOptions(descent=descent)).train(NO_STATE, start, task, 3, silent)
    return ours, plain


def federate(
    solver: Solver,
    problems: Sequence[LocalTask],
    server: Server = average,
    rounds: int = ROUNDS,
) -> Outcome:
    """Train all peers from one start, combine, and again."""
    start = problems[0].model.start
    states = [solver.init(start) for _ in problems]
    trained: list[Trained] = []
    for round_no in range(rounds):
        trained = []
        for peer, task in enumerate(problems):
            seed = seed_of(round_no, peer)
            with forked(seed):
                result, states[peer] = solver.train(states[peer], start, task, seed, silent)
            trained.append(result)
        start = server(start, trained)
    return Outcome(start, trained, states)


# -- what twins are written in ---------------------------------------------------------------


@cache
def twin_batches(peer: int, round_no: int) -> list[Batch]:
    """What that peer of `tasks(regression())` sees in one pass."""
    task = tasks(regression())[peer]
    return [
        (np.hstack([x.numpy(), np.ones((len(x), 1))]), y.numpy())
        for x, y in task.batches(seed_of(round_no, peer))
    ]


def slope_at(w: Matrix, batch: Batch) -> Matrix:
    """Gradient of the mean cross-entropy of softmax regression: (p - onehot)^T x / n."""
    x, y = batch
    scores = x @ w.T
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    gradient: Matrix = (p - np.eye(len(w))[y]).T @ x / len(x)
    return gradient


def matrix(params: Params | Mapping[str, Tensor]) -> Matrix:
    """The parameters of `regression` as a twin has them."""
    weight, bias = params["head.weight"], params["head.bias"]
    return torch.cat([weight, bias.unsqueeze(1)], dim=1).numpy()


def mean(ends: Sequence[Matrix]) -> Matrix:
    """By samples, as `average`."""
    return np.average(ends, axis=0, weights=SIZES)


def close(found: Params, expected: Matrix, *, within: float = 1e-9) -> None:
    np.testing.assert_allclose(matrix(found), expected, rtol=0.0, atol=within)


def equal(left: Params, right: Params, *, within: float = 0.0) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=0.0, atol=within)

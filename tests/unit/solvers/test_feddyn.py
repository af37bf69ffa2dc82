"""FedDyn: its fixed point is the common minimum."""

import numpy as np
import pytest
import torch
from torch import Tensor

from peer.aggregators.feddyn import FedDynServer
from peer.options.solvers import DescentOptions, FedDynOptions, SgdOptions
from peer.solvers.base import Batch
from peer.solvers.feddyn import FedDyn
from peer.solvers.sgd import Sgd
from peer.solvers.slopes import clipped, length
from peer.task import LocalTask
from protocol.params import Params, add, norm, sub
from protocol.round import Start
from tests.unit.methods.making import silent, small_model, small_task
from tests.unit.solvers.making import (
    close,
    equal,
    federate,
    matrix,
    of_aggregator,
    regression,
    slope_at,
    tasks,
    twin_batches,
)

LR, ALPHA = 0.3, 0.4
OPTIONS = FedDynOptions(descent=DescentOptions(lr=LR), alpha=ALPHA)


def test_three_rounds_are_those_of_the_twin() -> None:
    problems = tasks(regression())
    start = problems[0].model.start
    theta = matrix(start.params)
    h, gradient = np.zeros_like(theta), [np.zeros_like(theta), np.zeros_like(theta)]
    for round_no in range(3):
        ends = []
        for peer in (0, 1):
            w = theta.copy()
            for batch in twin_batches(peer, round_no):
                w = w - LR * (slope_at(w, batch) - gradient[peer] + ALPHA * (w - theta))
            gradient[peer] = gradient[peer] - ALPHA * (w - theta)
            ends.append(w)
        h = h - ALPHA / 2 * sum(w - theta for w in ends)
        theta = sum(ends) / 2 - h / ALPHA
    outcome = federate(FedDyn(OPTIONS), problems, of_aggregator(FedDynServer(), start, 2))
    close(outcome.start.params, theta)
    for peer in (0, 1):
        close(outcome.states[peer]["gradient"], gradient[peer])


class LeastSquares(LocalTask):
    """The mean of `|W x + b - target|^2 / 2`: a quadratic."""

    def loss(self, params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, Params]:
        scores = self.look(params, buffers, batch).logits
        wanted = torch.nn.functional.one_hot(batch.targets, self.model.num_classes)
        return (scores - wanted).square().sum(dim=1).mean() / 2, buffers


def quadratics() -> list[LeastSquares]:
    """Two peers, each with one batch: full gradients."""
    problems = tasks(regression(), sizes=(4, 4))
    return [LeastSquares(p.model, p.examples, p.options) for p in problems]


def common_minimum(problems: list[LeastSquares]) -> Params:
    x = torch.cat([p.examples.inputs for p in problems])
    wanted = torch.nn.functional.one_hot(torch.cat([p.examples.targets for p in problems]), 4)
    x1 = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    solution = torch.linalg.lstsq(x1, wanted.double()).solution
    return {"head.weight": solution[:-1].T, "head.bias": solution[-1]}


def test_at_the_common_minimum_nothing_moves() -> None:
    problems = quadratics()
    start = Start(common_minimum(problems))
    for problem in problems:
        batch = next(iter(problem.batches(0)))
        here = {n: t.clone().requires_grad_() for n, t in start.params.items()}
        grads = torch.autograd.grad(problem.loss(here, {}, batch)[0], list(here.values()))
        state = {"gradient": dict(zip(here, grads, strict=True))}
        assert norm(state["gradient"]) > 0.01  # the peers' own minima lie elsewhere
        trained, after = FedDyn(OPTIONS).train(state, start, problem, 0, silent)
        equal(trained.params, start.params, within=1e-14)
        equal(after["gradient"], state["gradient"], within=1e-14)


def test_quadratics_are_led_to_the_common_minimum_where_fedavg_stays_off_it() -> None:
    problems, descent = quadratics(), DescentOptions(lr=0.5, epochs=10)
    expected = common_minimum(problems)
    serve = of_aggregator(FedDynServer(), problems[0].model.start, 2)
    outcome = federate(
        FedDyn(FedDynOptions(descent=descent, alpha=0.5)), problems, serve, rounds=10
    )
    for found in (outcome.start.params, *(t.params for t in outcome.trained)):
        assert norm(sub(found, expected)) < 0.05
    first, second = (state["gradient"] for state in outcome.states)
    assert norm(first) > 0.1
    assert norm(add(first, second)) < 0.05  # the peers' gradients cancel at their common minimum
    averaged = federate(Sgd(SgdOptions(descent=descent)), problems, rounds=10)
    assert norm(sub(averaged.start.params, expected)) > 0.4


def test_a_long_gradient_is_clipped_as_a_whole() -> None:
    task = tasks(regression())[0]
    start, batch = task.model.start.params, next(iter(task.batches(0)))

    def steep(
        task: object, params: Params, buffers: Params, batch: object
    ) -> tuple[Tensor, Params, Params]:
        return torch.zeros(()), {n: torch.full_like(t, 3.0) for n, t in params.items()}, buffers

    _, grad, _ = clipped(10.0, steep)(task, start, {}, batch)
    assert length(grad).item() == pytest.approx(10.0)  # 16 numbers of 3 are 12 long
    _, grad, _ = clipped(12.5, steep)(task, start, {}, batch)
    assert grad["head.bias"].tolist() == [3.0, 3.0, 3.0, 3.0]


def test_state_and_running_statistics_do_not_meet() -> None:
    task = small_task(small_model("batch", dtype=torch.bfloat16))
    solver, start = FedDyn(), task.model.start
    trained, state = solver.train(solver.init(start), start, task, 0, silent)
    assert list(state["gradient"]) == list(start.params)
    assert {t.dtype for t in state["gradient"].values()} == {torch.float32}
    assert not trained.extras

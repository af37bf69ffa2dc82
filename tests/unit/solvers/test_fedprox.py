"""FedProx: the pull and nothing else."""

import pytest
import torch

from peer.options.solvers import DescentOptions, FedProxOptions, SgdOptions
from peer.solvers.descent import slope
from peer.solvers.fedprox import FedProx
from peer.solvers.optimiser import Momentum
from peer.solvers.sgd import Sgd
from peer.solvers.slopes import pulled
from protocol.params import NO_STATE, Params, add, norm, scale, sub
from tests.unit.methods.making import silent, small_model, small_task
from tests.unit.solvers.making import (
    beside_sgd,
    close,
    equal,
    federate,
    matrix,
    mean,
    regression,
    slope_at,
    tasks,
    twin_batches,
)

LR, MU = 0.3, 0.7
PLAIN = DescentOptions(lr=LR)


def test_three_rounds_are_those_of_the_twin() -> None:
    problems = tasks(regression())
    common = matrix(problems[0].model.start.params)
    for round_no in range(3):
        ends = []
        for peer in (0, 1):
            w = common.copy()
            for batch in twin_batches(peer, round_no):
                w = w - LR * (slope_at(w, batch) + MU * (w - common))
            ends.append(w)
        common = mean(ends)
    outcome = federate(FedProx(FedProxOptions(descent=PLAIN, mu=MU)), problems)
    close(outcome.start.params, common)


def test_the_gradient_of_the_penalty_is_mu_times_the_way_from_the_start() -> None:
    task = tasks(regression())[0]
    start, batch = task.model.start.params, next(iter(task.batches(0)))
    here = add(start, scale(start, 0.5))
    _, plain, _ = slope(task, here, {}, batch)
    _, grad, _ = pulled(start, MU)(task, here, {}, batch)
    equal(sub(grad, plain), scale(sub(here, start), MU), within=1e-15)


@pytest.mark.parametrize("norm_layer", ["none", "batch"])
def test_without_a_pull_it_is_sgd_bit_for_bit(norm_layer: str) -> None:
    ours, plain = beside_sgd(FedProx(FedProxOptions(descent=PLAIN, mu=0.0)), PLAIN, norm_layer)
    equal(ours.params, plain.params)
    equal(ours.buffers, plain.buffers)
    assert ours.nova_a == plain.nova_a == 3.0


def test_a_stronger_pull_stays_nearer_to_the_start() -> None:
    task = tasks(regression())[0]
    start = task.model.start
    ways = []
    for mu in (0.0, 0.5, 2.0):
        options = FedProxOptions(descent=DescentOptions(lr=LR, epochs=5), mu=mu)
        trained, _ = FedProx(options).train(NO_STATE, start, task, 0, silent)
        ways.append(norm(sub(trained.params, start.params)))
    assert ways[0] > ways[1] > ways[2] > 0.0


def test_running_statistics_are_not_pulled() -> None:
    task = small_task(small_model("batch"), size=8)
    start = task.model.start
    options = FedProxOptions(descent=DescentOptions(lr=1e-9), mu=100.0)
    trained, _ = FedProx(options).train(NO_STATE, start, task, 0, silent)
    free, _ = Sgd(SgdOptions(descent=DescentOptions(lr=1e-9))).train(
        NO_STATE, start, task, 0, silent
    )
    moved = trained.buffers["body.1.running_mean"] - start.buffers["body.1.running_mean"]
    assert moved.abs().max() > 1e-3
    torch.testing.assert_close(trained.buffers, free.buffers)


def test_nova_is_told_what_the_pull_takes_from_early_gradients() -> None:
    task = tasks(regression())[1]  # three batches
    options = FedProxOptions(descent=DescentOptions(lr=0.5), mu=1.0)
    trained, _ = FedProx(options).train(NO_STATE, task.model.start, task, 0, silent)
    assert trained.nova_a == 1.75  # a <- a / 2 + 1, three times


@pytest.mark.parametrize("nesterov", [False, True])
def test_novas_recursion_is_how_far_a_gradient_of_one_leads(nesterov: bool) -> None:
    """The optimiser itself, on the loss w + mu / 2 w^2 from 0."""
    options = DescentOptions(lr=0.1, momentum=0.9, nesterov=nesterov)
    rule, mu = Momentum(options), 0.4
    w: Params = {"w": torch.zeros((), dtype=torch.float64)}
    state = rule.init(w)
    for _ in range(7):
        w, state = rule.step(state, w, {"w": 1.0 + mu * w["w"]})
    assert rule.weight_of_steps(7, pull=mu) == pytest.approx(-w["w"].item() / 0.1, abs=1e-12)

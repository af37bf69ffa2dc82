"""SCAFFOLD: variates that cancel drift, with the common half that goes with it."""

import numpy as np
import pytest
import torch

from peer.aggregators.scaffold import ScaffoldServer
from peer.options.solvers import DescentOptions, SgdOptions
from peer.solvers.base import Opening
from peer.solvers.scaffold import Scaffold
from peer.solvers.sgd import Sgd
from protocol.params import NO_STATE, Params, norm, sub
from protocol.round import Start, Trained
from tests.unit.methods.making import silent, small_model, small_task
from tests.unit.solvers.making import (
    Batch,
    Server,
    close,
    equal,
    federate,
    matrix,
    of_aggregator,
    regression,
    seed_of,
    slope_at,
    tasks,
    twin_batches,
)

LR = 0.3
PLAIN = DescentOptions(lr=LR)


def with_server(start: Start, peers: int) -> tuple[Server, list[Params]]:
    """The common half over rounds, and the variate that it sent after each."""
    aggregated = of_aggregator(ScaffoldServer(), start, peers)
    sent: list[Params] = []

    def serve(start: Start, results: list[Trained]) -> Start:
        then = aggregated(start, results)
        sent.append(then.extras)
        return then

    return serve, sent


def test_three_rounds_are_those_of_the_twin() -> None:
    problems = tasks(regression())
    start = problems[0].model.start
    common = matrix(start.params)
    c, own = np.zeros_like(common), [np.zeros_like(common), np.zeros_like(common)]
    for round_no in range(3):
        ends, changes = [], []
        for peer in (0, 1):
            y = common.copy()
            batches = twin_batches(peer, round_no)
            for batch in batches:
                y = y - LR * (slope_at(y, batch) - own[peer] + c)
            new = own[peer] - c + (common - y) / (len(batches) * LR)
            changes.append(new - own[peer])
            own[peer] = new
            ends.append(y)
        common = common + sum(y - common for y in ends) / 2
        c = c + sum(changes) / 2
    serve, sent = with_server(start, 2)
    outcome = federate(Scaffold(PLAIN), problems, serve)
    close(outcome.start.params, common)
    close(sent[-1], c)
    for peer in (0, 1):
        close(outcome.states[peer]["variate"], own[peer])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_common_variate_is_the_mean_of_the_peers_own(momentum: float) -> None:
    problems = tasks(regression())
    serve, sent = with_server(problems[0].model.start, 2)
    outcome = federate(Scaffold(DescentOptions(lr=LR, momentum=momentum)), problems, serve)
    first, second = (state["variate"] for state in outcome.states)
    equal(sent[-1], {n: (t + second[n]) / 2 for n, t in first.items()}, within=1e-12)


def test_one_peer_alone_is_sgd_in_every_round() -> None:
    problems = tasks(regression(), sizes=(14,))
    serve, sent = with_server(problems[0].model.start, 1)
    outcome = federate(Scaffold(PLAIN), problems, serve)
    plain = federate(Sgd(SgdOptions(descent=PLAIN)), problems)
    equal(outcome.start.params, plain.start.params, within=1e-12)
    equal(outcome.states[0]["variate"], sent[-1], within=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        PLAIN,
        DescentOptions(lr=LR, epochs=2),
        DescentOptions(lr=LR, momentum=0.9),
        DescentOptions(lr=LR, momentum=0.9, nesterov=True),
    ],
    ids=["plain", "two epochs", "momentum", "nesterov"],
)
def test_the_own_variate_is_a_mean_of_the_rounds_gradients(options: DescentOptions) -> None:
    """Where the gradient is always the same, that is what the mean must be."""
    model = regression()
    task = tasks(model, sizes=(4,))[0]  # one batch: full gradients
    slow = DescentOptions(
        lr=1e-7, momentum=options.momentum, nesterov=options.nesterov, epochs=options.epochs
    )
    solver = Scaffold(slow)
    start = Start(model.start.params, extras={n: t + 1.0 for n, t in model.start.params.items()})
    _, state = solver.train(solver.init(start), start, task, seed_of(0, 0), silent)
    expected = slope_at(matrix(start.params), _whole(task.examples.inputs, task.examples.targets))
    close(state["variate"], expected, within=1e-5)


def _whole(inputs: torch.Tensor, targets: torch.Tensor) -> Batch:
    ones = np.ones((len(inputs), 1))
    return np.hstack([inputs.numpy(), ones]), targets.numpy()


def test_what_is_sent_is_how_the_own_variate_changed() -> None:
    task = tasks(regression())[0]
    start = task.model.start
    solver = Scaffold(PLAIN)
    before = solver.init(start)
    first, between = solver.train(before, start, task, 0, silent)
    assert list(first.extras) == list(start.params)
    equal(first.extras, between["variate"])
    second, after = solver.train(between, start, task, 1, silent)
    equal(
        second.extras,
        {n: t - between["variate"][n] for n, t in after["variate"].items()},
        within=1e-15,
    )


def test_a_start_without_a_common_variate_is_that_of_a_peer_alone() -> None:
    task = tasks(regression())[0]
    start, solver = task.model.start, Scaffold(PLAIN)
    _, state = solver.train(solver.init(start), start, task, 0, silent)
    alone, after = solver.train(state, start, task, 1, silent)
    plain, _ = Sgd(SgdOptions(descent=PLAIN)).train(NO_STATE, start, task, 1, silent)
    equal(alone.params, plain.params)
    told = Start(start.params, extras=state["variate"])
    same, _ = solver.train(state, told, task, 1, silent)
    equal(alone.extras, same.extras)
    assert norm(sub(after["variate"], state["variate"])) > 0.01


def test_layers_for_which_no_variate_comes_follow_their_gradient() -> None:
    task = tasks(regression())[0]
    start, solver = task.model.start, Scaffold(PLAIN)
    state = {"variate": {n: t + 1.0 for n, t in solver.init(start)["variate"].items()}}
    bias_stays_here = Start(start.params, extras={"head.weight": state["variate"]["head.weight"]})
    trained, _ = solver.train(state, bias_stays_here, task, 1, silent)
    plain, _ = Sgd(SgdOptions(descent=PLAIN)).train(NO_STATE, start, task, 1, silent)
    equal(trained.params, plain.params)


def test_before_any_training_no_change_is_sent() -> None:
    task = small_task(small_model("batch", dtype=torch.bfloat16))
    solver, start = Scaffold(), task.model.start
    assert isinstance(solver, Opening)
    extras = solver.opening(task.model)
    trained, _ = solver.train(solver.init(start), start, task, 0, silent)
    assert list(extras) == list(start.params)  # no running statistics
    for name, tensor in extras.items():
        assert not tensor.any()
        sent = trained.extras[name]
        assert (tensor.shape, tensor.dtype) == (sent.shape, sent.dtype)
        assert tensor.dtype == torch.float32

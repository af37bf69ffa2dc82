"""Ditto: two streams on the same batches."""

import torch

from peer.evaluate import evaluate
from peer.options.solvers import DescentOptions, DittoOptions, SgdOptions
from peer.solvers.ditto import Ditto
from peer.solvers.sgd import Sgd
from protocol.params import NO_STATE, Params, norm, sub
from protocol.round import Start
from tests.unit.methods.making import silent, small_model, small_task
from tests.unit.solvers.making import (
    close,
    equal,
    federate,
    matrix,
    mean,
    regression,
    seed_of,
    slope_at,
    tasks,
    twin_batches,
)

LR, LAMBDA = 0.3, 0.7
PLAIN = DescentOptions(lr=LR)


def ditto(lam: float, descent: DescentOptions = PLAIN) -> Ditto:
    return Ditto(DittoOptions(descent=descent, lam=lam))


def test_three_rounds_are_those_of_the_twin() -> None:
    """The twin takes both steps on a batch before it looks at the next, as the paper does."""
    problems = tasks(regression())
    common = matrix(problems[0].model.start.params)
    v = [common.copy(), common.copy()]
    for round_no in range(3):
        ends = []
        for peer in (0, 1):
            w = common.copy()
            for batch in twin_batches(peer, round_no):
                v[peer] -= LR * (slope_at(v[peer], batch) + LAMBDA * (v[peer] - common))
                w -= LR * slope_at(w, batch)
            ends.append(w)
        common = mean(ends)
    outcome = federate(ditto(LAMBDA), problems)
    close(outcome.start.params, common)
    for peer in (0, 1):
        personal = outcome.trained[peer].personal
        assert personal is not None
        close(personal, v[peer])
        close(outcome.states[peer]["personal"], v[peer])


def test_the_common_stream_is_sgd_bit_for_bit() -> None:
    problems = tasks(regression())
    equal(
        federate(ditto(LAMBDA), problems).start.params,
        federate(Sgd(SgdOptions(descent=PLAIN)), problems).start.params,
    )


def test_without_a_pull_the_personal_model_is_that_of_training_alone() -> None:
    task = tasks(regression())[0]
    alone = task.model.start
    for round_no in range(3):
        trained, _ = Sgd(SgdOptions(descent=PLAIN)).train(
            NO_STATE, alone, task, seed_of(round_no, 0), silent
        )
        alone = Start(trained.params)
    outcome = federate(ditto(0.0), tasks(regression()))
    equal(outcome.states[0]["personal"], alone.params)


def test_a_strong_pull_makes_the_personal_model_the_common_start() -> None:
    task = tasks(regression())[0]
    far = Start({name: t + 1.0 for name, t in task.model.start.params.items()})
    solver = ditto(1000.0, DescentOptions(lr=1e-3, epochs=3))
    state = solver.init(task.model.start)
    _, state = solver.train(state, far, task, 0, silent)
    assert norm(sub(state["personal"], far.params)) < 0.01


def test_the_personal_model_has_statistics_of_its_own() -> None:
    task = small_task(small_model("batch"), size=12)
    solver = ditto(0.0)
    start = task.model.start
    away = Start({n: t + 0.3 for n, t in start.params.items()}, start.buffers)
    trained, _ = solver.train(solver.init(start), away, task, 0, silent)
    alone, _ = Sgd(SgdOptions(descent=PLAIN)).train(NO_STATE, start, task, 0, silent)
    assert trained.personal is not None

    def served(names: Params) -> Params:
        assert trained.personal is not None
        return {name: trained.personal[name] for name in names}

    equal(served(start.params), alone.params)
    equal(served(start.buffers), alone.buffers)
    assert not torch.equal(
        trained.buffers["body.1.running_mean"], trained.personal["body.1.running_mean"]
    )
    score = evaluate(task.model, served(start.params), served(start.buffers), task.examples)
    assert score is not None
    assert score.num_examples == 12


def test_both_streams_count_as_progress() -> None:
    task = tasks(regression())[1]  # three batches
    seen: list[tuple[int, int]] = []
    solver = ditto(1.0)
    start = task.model.start
    trained, _ = solver.train(
        solver.init(start), start, task, 0, lambda done, of: seen.append((done, of))
    )
    assert seen == [(step, 6) for step in range(1, 7)]
    assert trained.num_steps == 3

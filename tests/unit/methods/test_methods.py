"""A method as a whole: its parts fit, and two peers learn with it."""

from dataclasses import replace

import pytest

from peer.aggregators.craft import Craft
from peer.evaluate import evaluate
from peer.methods import Method, make_method
from peer.mixers.replicated import Replicated
from peer.options.methods import Need
from peer.options.recipe import PRESETS, defaults, expand
from peer.seeding import seeded
from peer.task import LocalTask
from protocol.ids import PeerId
from protocol.round import Contribution, Start, Trained
from tests.unit.methods.making import contribution, silent, small_model, small_task

PEERS = (PeerId("a"), PeerId("b"))


# Those with one common model are played by the trainer: tests/unit/training/test_presets.py.
OWN_STARTS = [name for name, preset in PRESETS.items() if preset["mixer"] != "replicated"]


def sent(peer: PeerId, trained: Trained) -> Contribution:
    return contribution(peer, trained.params, buffers=trained.buffers, extras=trained.extras)


def a_round(
    method: Method, tasks: dict[PeerId, LocalTask], starts: dict[PeerId, Start], round_no: int
) -> tuple[dict[PeerId, Trained], dict[PeerId, Start]]:
    """Train all peers, exchange what they share, and mix."""
    results = {}
    for peer in PEERS:
        with seeded(0, peer, "train", round_no) as seed:
            state = method.solver.init(starts[peer])
            results[peer], _ = method.train(state, starts[peer], tasks[peer], seed, silent)
    mixes = {}
    for peer, other in (PEERS, PEERS[::-1]):
        own = sent(peer, results[peer])
        shared = method.mixer.share(results[other], tasks[other].model.head)
        others = [] if shared is None else [sent(other, shared)]
        with seeded(0, peer, "mix", round_no) as seed:
            probe = method.probe(tasks[peer], results[peer].buffers, seed)
            state = method.mixer.init(starts[peer])
            mixed, _ = method.mixer.mix(state, own, others, probe)
        mixes[peer] = mixed.start
    return results, mixes


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("preset", OWN_STARTS)
def test_two_peers_learn(preset: str, norm: str) -> None:
    method = make_method(expand(preset, {"train.batch_size": 4, "solver.lr": 0.1}))
    model = method.solver.adapt(small_model(norm))
    tasks = {
        peer: method.task(model, small_task(model, size=24, seed=seed).examples)
        for seed, peer in enumerate(PEERS)
    }
    starts = dict.fromkeys(PEERS, model.start)
    results: dict[PeerId, Trained] = {}
    for round_no in range(1, 9):
        results, starts = a_round(method, tasks, starts, round_no)
    for peer in PEERS:
        score = evaluate(model, results[peer].params, results[peer].buffers, tasks[peer].examples)
        assert score is not None
        assert score.accuracy > 0.6  # chance is a third


def test_the_loss_of_the_start_is_measured_only_for_a_method_that_needs_it() -> None:
    method = make_method(defaults("local"))
    task = small_task(small_model())
    start = task.model.start
    plain, _ = method.train({}, start, task, 0, silent)
    solver = method.recipe.solver
    asking = replace(solver, entry=replace(solver.entry, needs=frozenset({Need.START_LOSS})))
    needy = replace(method, recipe=replace(method.recipe, solver=asking))
    asked, _ = needy.train({}, start, task, 0, silent)
    assert plain.start_loss == 0.0
    assert asked.start_loss == task.full_loss(start.params, start.buffers)


def test_an_aggregator_that_projects_knows_the_rows_of_the_model_at_a_relay_and_in_each_copy() -> (
    None
):
    model = small_model()
    options = {"aggregator.project": "fedconst"}
    method, fitted = make_method(expand("fedconst+craft", options)).fit(model)
    assert isinstance(method.aggregator, Craft)
    assert isinstance(method.mixer, Replicated)
    assert method.aggregator.rows == fitted.rows
    assert method.mixer.aggregator is method.aggregator


def test_a_method_without_such_an_aggregator_is_the_same_for_every_model() -> None:
    method = make_method(expand("ditto", {}))
    assert method.fit(small_model())[0] is method

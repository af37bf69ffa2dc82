"""FedRep: a common body, classifiers that never leave."""

import pytest
import torch

from peer.mixers.fedrep import FedRep
from peer.options.mixers import FedRepOptions
from peer.options.solvers import DescentOptions, FedRepSolverOptions
from peer.solvers.fedrep import FedRepSolver
from protocol.params import NO_STATE
from tests.unit.families.hamlet import (
    BODY,
    HEAD,
    NAMES,
    OWNED,
    A,
    B,
    assert_equal,
    examples,
    hamlet,
    initial,
    leaf,
    loss,
    mean,
    step,
)
from tests.unit.methods.making import (
    contribution,
    linear_point,
    linear_probe,
    silent,
    small_model,
    small_task,
)


def test_three_rounds_are_those_of_a_naive_twin() -> None:
    played = hamlet("fedrep", solver__head_epochs=2, solver__epochs=2).play()

    starts = {name: initial() for name in OWNED}
    ends: dict[str, dict[str, torch.Tensor]] = {}
    for _ in range(3):
        for name, start in starts.items():
            w = start
            for phase in (HEAD, HEAD, BODY, BODY):
                w = leaf(w)
                w = step(w, loss(w, examples(name)), phase)
            ends[name] = w
        body = {n: mean([ends[name][n] for name in OWNED], [1.0, 1.0, 1.0]) for n in BODY}
        starts = {name: {**end, **body} for name, end in ends.items()}

    for name, peer in played.peers.items():
        assert_equal(peer.trained.params, {n: ends[name][n] for n in NAMES})


def test_bodies_are_averaged_and_the_own_classifier_stays() -> None:
    own, other = (contribution(s, linear_point(k), num_examples=k + 1) for k, s in enumerate("ab"))
    shared = FedRep().share(other.trained, linear_probe().head)
    assert shared is not None
    assert list(shared.params) == ["body.scale"]
    arrived = contribution("b", shared.params, num_examples=2)
    for weights, part in (("uniform", 0.5), ("samples", 2 / 3)):
        options = FedRepOptions(weights=weights)  # type: ignore[arg-type]  # one of the two
        mixed, _ = FedRep(options).mix(NO_STATE, own, [arrived], linear_probe())
        expected = torch.lerp(linear_point(0)["body.scale"], linear_point(1)["body.scale"], part)
        torch.testing.assert_close(mixed.start.params["body.scale"], expected)
        assert mixed.start.params["head.weight"] is own.trained.params["head.weight"]
        assert mixed.client_weight == pytest.approx({A: 1.0 - part, B: part})


def test_running_statistics_rest_while_the_classifier_learns() -> None:
    model = small_model("batch")
    descent = DescentOptions(epochs=1)
    task = small_task(model)
    counts = []
    for head_epochs in (1, 5):
        solver = FedRepSolver(FedRepSolverOptions(descent=descent, head_epochs=head_epochs))
        trained, _ = solver.train(NO_STATE, model.start, task, 0, silent)
        counts.append(int(trained.buffers["body.1.num_batches_tracked"]))
    assert counts == [task.num_batches, task.num_batches]


def test_its_steps_are_those_of_both_phases_and_the_weight_of_the_bodys_alone() -> None:
    model = small_model()
    task = small_task(model, size=12, batch_size=4)
    solver = FedRepSolver(FedRepSolverOptions(head_epochs=2))
    trained, _ = solver.train(NO_STATE, model.start, task, 0, silent)
    assert trained.num_steps == 9  # 2 + 1 passes of 3 batches
    assert trained.nova_a == 3.0

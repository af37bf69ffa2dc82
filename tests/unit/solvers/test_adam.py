"""Adam against torch.optim, and FedCONST's constraints under it."""

import pytest
import torch

from peer.options.solvers import DescentOptions, FedConstOptions
from peer.solvers.descent import Descent, descend, slope
from peer.solvers.fedconst import FedConst
from peer.solvers.optimiser import Adam
from protocol.errors import ConfigError
from protocol.params import NO_STATE
from tests.unit.methods.making import silent, small_model, small_task
from tests.unit.solvers.making import equal

WEIGHTS = ("body.0.weight", "head.weight")


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_are_those_of_torch_optim(decay: float) -> None:
    task = small_task(small_model(dtype=torch.float64), size=22)
    start = task.model.start
    options = DescentOptions(lr=0.01, weight_decay=decay, epochs=3)
    way = Descent(optimiser=Adam(options), epochs=3)
    trained = descend(start, task, way, 5, silent)
    leaves = {name: t.clone().requires_grad_() for name, t in start.params.items()}
    oracle = torch.optim.Adam(leaves.values(), lr=0.01, weight_decay=decay)
    for epoch in range(3):
        for batch in task.batches(5 + epoch):
            _, grads, _ = slope(task, leaves, {}, batch)
            for name, leaf in leaves.items():
                leaf.grad = grads[name]
            oracle.step()
    equal(trained.params, {name: leaf.detach() for name, leaf in leaves.items()}, within=1e-12)
    assert (trained.lr, trained.nova_a, trained.num_steps) == (0.01, 18.0, 18)


@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_both_constraints_hold_after_every_number_of_steps(decay: float, epochs: int) -> None:
    descent = DescentOptions(lr=0.01, weight_decay=decay, epochs=epochs)
    solver = FedConst(FedConstOptions(descent=descent, optimiser="adam"))
    for size in (4, 8, 22):  # 1, 2 and 6 steps a pass
        task = small_task(solver.adapt(small_model(dtype=torch.float64)), size=size)
        start = task.model.start
        trained, _ = solver.train(NO_STATE, start, task, 3, silent)
        for name in WEIGHTS:
            old, new = start.params[name].flatten(1), trained.params[name].flatten(1)
            assert (new - old).norm() > 1e-3
            assert new.mean(dim=1).abs().max() < 1e-14
            assert (old * (new - old)).sum(dim=1).abs().max() < 1e-13


def test_without_the_projection_adam_breaks_both() -> None:
    task = small_task(FedConst().adapt(small_model(dtype=torch.float64)))
    start = task.model.start
    free = descend(start, task, Descent(optimiser=Adam(DescentOptions()), epochs=1), 3, silent)
    old, new = (p["head.weight"] for p in (start.params, free.params))
    assert new.mean(dim=1).abs().max() > 1e-3
    assert (old * (new - old)).sum(dim=1).abs().max() > 1e-3


def test_adam_with_momentum_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"momentum = 0\.9 has no meaning with optimiser = adam"):
        FedConstOptions(descent=DescentOptions(momentum=0.9), optimiser="adam")

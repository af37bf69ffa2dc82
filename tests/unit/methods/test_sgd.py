"""The training loop against torch.optim, step by step in float64."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch.func import functional_call

from peer.options.methods import DescentOptions, SgdOptions
from peer.solvers.base import Batch, Task
from peer.solvers.descent import Descent, descend, slope
from peer.solvers.optimiser import Momentum
from peer.solvers.sgd import Sgd
from peer.task import LocalTask
from protocol.errors import ConfigError
from protocol.params import NO_STATE, Params, add, scale
from protocol.round import Start
from tests.unit.methods.making import silent, small_model, small_task


def oracle(task: LocalTask, start: Start, options: DescentOptions, seed: int) -> Params:
    """The same training by torch.optim."""
    leaves = {name: t.clone().requires_grad_() for name, t in start.params.items()}
    optimiser = torch.optim.SGD(
        leaves.values(),
        lr=options.lr,
        momentum=options.momentum,
        nesterov=options.nesterov,
        weight_decay=options.weight_decay,
    )
    for epoch in range(options.epochs):
        for inputs, targets in task.batches(seed + epoch):
            optimiser.zero_grad()
            F.cross_entropy(
                functional_call(task.model.module, leaves, (inputs,)), targets
            ).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return {name: leaf.detach() for name, leaf in leaves.items()}


@pytest.mark.parametrize(
    "options",
    [
        DescentOptions(lr=0.1),
        DescentOptions(lr=0.1, weight_decay=0.02, epochs=2),
        DescentOptions(lr=0.1, momentum=0.9, weight_decay=0.02),
        DescentOptions(lr=0.1, momentum=0.9, nesterov=True, epochs=2),
    ],
    ids=["plain", "decay", "momentum", "nesterov"],
)
def test_training_is_that_of_torch_optim(options: DescentOptions) -> None:
    task = small_task(small_model(dtype=torch.float64), size=22)
    start = task.model.start
    trained, _ = Sgd(SgdOptions(descent=options)).train(
        NO_STATE, start, task, seed=5, progress=silent
    )
    for name, expected in oracle(task, start, options, seed=5).items():
        torch.testing.assert_close(trained.params[name], expected, rtol=0, atol=1e-12)


def test_the_result_says_how_it_came_about() -> None:
    task = small_task(small_model(), size=10, batch_size=4)
    seen: list[tuple[int, int]] = []
    options = DescentOptions(lr=0.1, epochs=2)
    trained, _ = Sgd(SgdOptions(descent=options)).train(
        NO_STATE, task.model.start, task, 1, lambda done, planned: seen.append((done, planned))
    )
    assert seen == [(step, 6) for step in range(1, 7)]
    assert (trained.num_steps, trained.num_examples, trained.nova_a, trained.lr) == (
        6,
        10,
        6.0,
        0.1,
    )
    assert trained.class_counts == task.class_counts
    assert 0.0 < trained.train_loss < 10.0


def test_the_training_loss_is_the_mean_over_the_steps() -> None:
    task = small_task(small_model(dtype=torch.float64), size=8)
    losses = []

    def watched(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[torch.Tensor, Params, Params]:
        loss, grad, buffers = slope(task, params, buffers, batch)
        losses.append(loss.item())
        return loss, grad, buffers

    way = Descent(optimiser=Momentum(DescentOptions()), epochs=3, follow=watched)
    trained = descend(task.model.start, task, way, 0, silent)
    assert trained.train_loss == pytest.approx(sum(losses) / 6, abs=1e-15)


def test_a_slope_of_ones_own_is_followed() -> None:
    task = small_task(small_model(dtype=torch.float64), size=4)
    start = task.model.start

    def spring(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[torch.Tensor, Params, Params]:
        loss, grad, buffers = slope(task, params, buffers, batch)
        return loss, add(scale(grad, 0.0), params), buffers  # the gradient of ||params||^2 / 2

    way = Descent(optimiser=Momentum(DescentOptions(lr=0.5)), epochs=1, follow=spring)
    trained = descend(start, task, way, 0, silent)
    torch.testing.assert_close(trained.params["head.weight"], start.params["head.weight"] / 2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (DescentOptions(), 3.0),
        (DescentOptions(momentum=0.5), 1.0 + 1.5 + 1.75),
        (DescentOptions(momentum=0.5, nesterov=True), 1.5 + 1.75 + 1.875),
    ],
)
def test_nova_counts_how_much_the_gradients_weighed(
    options: DescentOptions, expected: float
) -> None:
    assert Momentum(options).weight_of_steps(3) == expected


def test_novas_recursion_equals_its_closed_form() -> None:
    r, steps = 0.9, 40
    closed = (steps - r * (1 - r**steps) / (1 - r)) / (1 - r)
    assert Momentum(DescentOptions(momentum=r)).weight_of_steps(steps) == pytest.approx(closed)


def test_a_divergence_shows_in_the_training_loss() -> None:
    task = small_task(small_model(), size=40)
    trained, _ = Sgd(SgdOptions(descent=DescentOptions(lr=1e6, epochs=4))).train(
        NO_STATE, task.model.start, task, 0, silent
    )
    assert not torch.tensor(trained.train_loss).isfinite()


def test_bfloat16_trains_close_to_float32() -> None:
    model = small_model()
    results = []
    for task in (small_task(model), small_task(model, precision="bf16")):
        trained, _ = Sgd().train(NO_STATE, model.start, task, 0, silent)
        results.append(trained.params["head.weight"])
        assert trained.params["head.weight"].dtype == torch.float32
    assert not torch.equal(*results)
    torch.testing.assert_close(*results, rtol=0.05, atol=0.01)


def test_nesterov_without_momentum_is_refused() -> None:
    with pytest.raises(ConfigError, match="nesterov = true needs momentum > 0"):
        DescentOptions(nesterov=True)


def test_options_are_refused_at_construction() -> None:
    with pytest.raises(
        ConfigError, match=r"lr = 0.0 cannot be used: it must be a number in \(0, 1000000\]"
    ):
        replace(DescentOptions(), lr=0.0)

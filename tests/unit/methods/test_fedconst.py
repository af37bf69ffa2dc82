"""FedCONST: what stays constant, what does not, and the identities of its projection."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from peer.mixers.fedavg import FedAvg
from peer.mixers.fedc2i import FedC2I
from peer.models.describe import describe
from peer.options.methods import DescentOptions, FedConstOptions
from peer.solvers.base import Batch, Task
from peer.solvers.descent import Descent, descend, slope
from peer.solvers.fedconst import FedConst
from peer.solvers.optimiser import Momentum
from peer.solvers.rows import Anchor, centred, direction, project
from peer.task import LocalTask
from protocol.params import NO_STATE, Params, norm, sub
from protocol.round import Start
from tests.unit.methods.making import contribution, linear_probe, silent, small_model, small_task

WEIGHTS = ("body.0.weight", "head.weight")
HEAVY = DescentOptions(lr=0.1, momentum=0.9, weight_decay=0.1)


def adapted_task(options: FedConstOptions, seed: int = 0) -> LocalTask:
    model = FedConst(options).adapt(small_model(dtype=torch.float64))
    return small_task(model, size=24, seed=seed)


def train(options: FedConstOptions, task: LocalTask, start: Start | None = None) -> Params:
    trained, _ = FedConst(options).train(NO_STATE, start or task.model.start, task, 3, silent)
    return trained.params


def rows(tensor: Tensor) -> Tensor:
    return tensor.flatten(1)


def random_rows(seed: int, *shape: int, mean: float = 0.0) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance, dtype=torch.float64) + mean


@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize(
    "descent",
    [
        DescentOptions(lr=0.1),
        DescentOptions(lr=0.1, momentum=0.9),
        DescentOptions(lr=0.1, momentum=0.9, nesterov=True),
        DescentOptions(lr=0.1, weight_decay=0.1),
    ],
    ids=["plain", "momentum", "nesterov", "decay"],
)
def test_both_constraints_hold_after_every_number_of_steps(
    descent: DescentOptions, epochs: int
) -> None:
    options = FedConstOptions(descent=replace(descent, epochs=epochs))
    task = adapted_task(options)
    start, end = task.model.start.params, train(options, task)
    for name in WEIGHTS:
        old, new = rows(start[name]), rows(end[name])
        assert (new - old).norm() > 1e-3
        assert new.mean(dim=1).abs().max() < 1e-14
        assert (old * (new - old)).sum(dim=1).abs().max() < 1e-13


def test_norms_of_rows_never_decrease_even_under_weight_decay() -> None:
    options = FedConstOptions(descent=HEAVY)
    task = adapted_task(options)
    start, end = task.model.start.params, train(options, task)
    for name in WEIGHTS:
        old, new = rows(start[name]), rows(end[name])
        expected = old.square().sum(dim=1) + (new - old).square().sum(dim=1)  # Pythagoras
        torch.testing.assert_close(new.square().sum(dim=1), expected)


def test_biases_are_free() -> None:
    options = FedConstOptions()
    task = adapted_task(options)
    moved = sub(train(options, task), task.model.start.params)
    assert moved["body.0.bias"].sum().abs() > 1e-6


def test_without_centring_the_start_means_stay_what_they_were() -> None:
    options = FedConstOptions(center_init=False)
    task = adapted_task(options)
    start, end = task.model.start.params, train(options, task)
    for name in WEIGHTS:
        old = rows(start[name]).mean(dim=1)
        assert old.abs().max() > 1e-3
        torch.testing.assert_close(rows(end[name]).mean(dim=1), old)


def test_projecting_gradients_or_displacements_gives_the_same_path() -> None:
    options = FedConstOptions(descent=HEAVY)
    task = adapted_task(options)
    start = task.model.start.params
    axes = {name: direction(rows(start[name]), "joint") for name in WEIGHTS}

    def projected(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        loss, grad, buffers = slope(task, params, buffers, batch)
        decayed = {n: g + HEAVY.weight_decay * params[n] for n, g in grad.items()}
        for name, axis in axes.items():
            decayed[name] = project(rows(decayed[name]), axis).view_as(decayed[name])
        return loss, decayed, buffers

    undecayed = Momentum(DescentOptions(lr=HEAVY.lr, momentum=HEAVY.momentum))
    way = Descent(optimiser=undecayed, epochs=1, follow=projected)
    by_gradient = descend(task.model.start, task, way, 3, silent).params
    for name, expected in train(options, task).items():
        torch.testing.assert_close(by_gradient[name], expected, rtol=0, atol=1e-13)


def test_weight_decay_is_a_pull_to_the_start() -> None:
    start, end = random_rows(1, 5, 9), random_rows(2, 5, 9)
    axis = direction(start, "joint")
    inside = start + project(end - start, axis)
    torch.testing.assert_close(project(0.3 * inside, axis), 0.3 * (inside - start))


def test_with_a_centred_start_both_modes_are_one() -> None:
    start = random_rows(1, 4, 10)
    start = start - start.mean(dim=1, keepdim=True)
    moved = random_rows(2, 4, 10, mean=1.0)
    joint, sequential = (project(moved, direction(start, mode)) for mode in ("joint", "sequential"))
    torch.testing.assert_close(joint, sequential)


def test_in_sequence_the_mean_leaks_by_the_formula_of_the_paper_check() -> None:
    start, moved = random_rows(1, 1, 75, mean=1.0), random_rows(2, 1, 75)
    axis = direction(start, "sequential")
    leaked = project(moved, axis).mean()
    along = (axis * (moved - moved.mean())).sum()
    assert leaked.item() == pytest.approx((-axis.mean() * along).item(), abs=1e-15)
    assert project(moved, direction(start, "joint")).mean().abs() < 1e-16


def test_the_joint_projection_is_symmetric_idempotent_and_kills_both_directions() -> None:
    start = random_rows(1, 1, 6, mean=0.5)
    axis = direction(start, "joint")
    matrix = torch.stack([project(row.unsqueeze(0), axis)[0] for row in torch.eye(6).double()])
    torch.testing.assert_close(matrix, matrix.T)
    torch.testing.assert_close(matrix @ matrix, matrix)
    assert (matrix @ torch.ones(6).double()).abs().max() < 1e-15
    assert (matrix @ start[0]).abs().max() < 1e-15


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_constant_row_has_no_direction_and_is_only_centred(value: float) -> None:
    start = torch.full((1, 5), value)
    moved = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    assert project(moved, direction(start, "joint")).tolist() == [[-2.0, -1.0, 0.0, 1.0, 2.0]]


def test_a_nearly_constant_row_is_guarded() -> None:
    start = 1.0 + 1e-8 * random_rows(1, 1, 5)
    assert direction(start, "joint").abs().max() == 0.0


def test_rows_of_one_or_two_entries_are_left_alone() -> None:
    start = {"one": torch.ones(3, 1, 1, 1), "two": torch.ones(3, 2), "three": torch.ones(3, 3)}
    axes = dict.fromkeys(start, 0)
    moved = {
        name: tensor + torch.arange(tensor[0].numel()).view_as(tensor[0]) + 1.0
        for name, tensor in start.items()
    }
    inside = Anchor.at(start, axes, "joint").confine(moved)
    assert torch.equal(inside["one"], moved["one"])
    assert torch.equal(inside["two"], moved["two"])
    assert inside["three"][0].tolist() == [0.0, 1.0, 2.0]
    assert centred(start, axes)["two"] is start["two"]


def test_rows_of_a_transposed_convolution_are_its_output_channels() -> None:
    net = nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.Flatten(), nn.Linear(27, 2))
    model = FedConst().adapt(describe("net", net, (2, 2, 2), 2))
    weight = model.start.params["0.weight"]  # (in, out, kh, kw)
    assert model.rows == {"0.weight": 1, "2.weight": 0}
    torch.testing.assert_close(weight.mean(dim=(0, 2, 3)), torch.zeros(3))
    moved = {
        n: t + torch.randn(t.shape, generator=torch.Generator().manual_seed(1))
        for n, t in model.start.params.items()
    }
    inside = Anchor.at(model.start.params, model.rows, "joint").confine(moved)
    free = inside["0.weight"] - weight
    torch.testing.assert_close(free.sum(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(
        (free * weight).sum(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5
    )


def test_normalisation_layers_and_biases_have_no_rows() -> None:
    assert list(small_model("batch").rows) == list(WEIGHTS)


def test_from_one_start_both_constraints_survive_a_weighted_mean() -> None:
    options = FedConstOptions(descent=HEAVY)
    tasks = [adapted_task(options, seed) for seed in (0, 1)]
    start = tasks[0].model.start.params
    points = [
        contribution(f"p{k}", train(options, task), num_examples=k + 1)
        for k, task in enumerate(tasks)
    ]
    mixed, _ = FedAvg().mix(NO_STATE, points[0], points[1:], linear_probe())
    for name in WEIGHTS:
        old, new = rows(start[name]), rows(mixed.start.params[name])
        assert new.mean(dim=1).abs().max() < 1e-14
        assert (old * (new - old)).sum(dim=1).abs().max() < 1e-13


def test_from_own_starts_only_the_centring_survives_mixing() -> None:
    options = FedConstOptions(descent=HEAVY)
    tasks = [adapted_task(options, seed) for seed in (0, 1)]
    starts = [Start(train(options, task)) for task in tasks]  # after a round, each its own
    ends = [train(options, task, start) for task, start in zip(tasks, starts, strict=True)]
    mixed = {n: (ends[0][n] + ends[1][n]) / 2 for n in ends[0]}
    for name in WEIGHTS:
        old, new = rows(starts[0].params[name]), rows(mixed[name])
        assert new.mean(dim=1).abs().max() < 1e-14
        within = (old * (rows(ends[0][name]) - old)).sum(dim=1).abs().max()
        across = (old * (new - old)).sum(dim=1).abs().max()
        assert within < 1e-13
        assert across > 1e-4


def test_equal_starts_of_kinfolk_stay_put_in_the_mix() -> None:
    start = adapted_task(FedConstOptions()).model.start
    everyone = [
        contribution(sender, {"body.scale": torch.ones(3).double(), **_head(start)})
        for sender in "abc"
    ]
    mixed, _ = FedC2I().mix(NO_STATE, everyone[0], everyone[1:], linear_probe(classes=3))
    assert norm(sub(mixed.start.params, everyone[0].trained.params)) < 1e-14


def _head(start: Start) -> Params:
    return {
        "head.weight": start.params["head.weight"][:, :3],
        "head.bias": start.params["head.bias"],
    }

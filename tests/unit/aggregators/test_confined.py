"""CRAFT where FedCONST's peers go: both papers' promises hold for the common model."""

import pytest
import torch
from torch import Tensor, nn

from peer.aggregators.confine import weight_rows
from peer.aggregators.craft import Craft
from peer.models.describe import describe
from peer.models.registry import build_model
from peer.options.aggregators import CraftOptions
from peer.solvers.rows import Anchor, centred
from protocol.params import Params, add, sub
from protocol.round import Contribution, Start
from tests.unit.aggregators.making import aggregate, draw, moved, sent

SHAPES = {"body.weight": (4, 2, 3, 3), "body.bias": (4,), "head.weight": (3, 10), "head.bias": (3,)}
ROWS = {"body.weight": 0, "head.weight": 0}


def point(seed: int) -> Params:
    return {name: draw(seed + i, *shape) for i, (name, shape) in enumerate(SHAPES.items())}


def confined_peers(start: Params, seed: int) -> list[Contribution]:
    """Three peers that trained as FedCONST does: their displacements lie in the start's set."""
    anchor = Anchor.at(start, ROWS, "joint")
    return [
        sent(name, anchor.confine(add(start, point(seed + 10 * k), factor=0.1)), num_examples=k + 1)
        for k, name in enumerate("abc")
    ]


def leak(step: Params, start: Params, name: str) -> tuple[float, float]:
    """How far rows of a step are from zero mean, and from orthogonal to the start's."""
    rows, before = step[name].flatten(1), start[name].flatten(1)
    return rows.mean(dim=1).abs().max().item(), (rows * before).sum(dim=1).abs().max().item()


def two_rounds(project: str) -> tuple[Start, Params, Tensor]:
    """The second start, the step taken from it, and how far its targets were missed."""
    aggregator = Craft(CraftOptions(lr=1.0, project=project))  # type: ignore[arg-type]  # a name
    start = Start(centred(point(0), ROWS))
    made, state = aggregate(aggregator, start, confined_peers(start.params, 100))
    start = made.start
    made, state = aggregate(aggregator, start, confined_peers(start.params, 200), state)
    step = moved(start, made)
    for name, tensor in step.items():
        torch.testing.assert_close(state["memory"][name], tensor)  # the projected one is stored
    residuals = [group["largest_residual"] for group in made.groups.values()]
    return start, step, torch.tensor(residuals)


@pytest.mark.parametrize("name", ROWS)
def test_projected_steps_keep_both_constraints_and_all_targets(name: str) -> None:
    start, step, residuals = two_rounds("fedconst")
    assert max(leak(step, start.params, name)) < 1e-12
    assert residuals.max() < 1e-12
    assert step[name].norm() > 0.1


@pytest.mark.parametrize("name", ROWS)
def test_without_it_the_reference_leaves_the_set_of_the_start_but_not_the_mean(name: str) -> None:
    start, step, residuals = two_rounds("none")
    mean, along = leak(step, start.params, name)
    assert mean < 1e-12
    assert along > 1e-2
    assert residuals.max() < 1e-12


def test_biases_are_free() -> None:
    (_, step, _), (_, plain, _) = two_rounds("fedconst"), two_rounds("none")
    torch.testing.assert_close(step["head.bias"], plain["head.bias"], rtol=0.0, atol=1e-12)


def test_what_projection_costs_peers_that_train_freely_is_told() -> None:
    start = Start(point(0))
    free = [sent(name, add(start.params, point(10 * k + 10))) for k, name in enumerate("abc")]
    for project, missed in (("none", False), ("fedconst", True)):
        aggregator = Craft(CraftOptions(project=project))  # type: ignore[arg-type]  # a name
        made, _ = aggregate(aggregator, start, free)
        assert (made.groups["body"]["largest_residual"] > 1e-3) is missed


@pytest.mark.parametrize("model", ["mlp", "lenet5", "cnn", "resnet20", "resnet18"])
def test_rows_are_guessed_right_for_every_kind_of_built_in_model(model: str) -> None:
    built = build_model(model, (1, 28, 28), 10, "group", 0)
    assert weight_rows(built.start.params) == built.rows


def test_rows_of_a_transposed_convolution_come_from_the_model() -> None:
    net = nn.Sequential(
        nn.ConvTranspose2d(2, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )
    model = describe("up", net, (2, 5, 5), 3).to(torch.device("cpu"), torch.float64)
    start = model.start
    peers = [sent(n, add(start.params, shifted(start.params, k))) for k, n in enumerate("ab")]
    craft = Craft(CraftOptions(lr=1.0, project="fedconst"), rows=model.rows)
    made, _ = aggregate(craft, start, peers)
    step = sub(start.params, made.start.params)["0.weight"]
    assert step.movedim(1, 0).flatten(1).mean(dim=1).abs().max() < 1e-12


def shifted(params: Params, seed: int) -> Params:
    return {name: draw(seed + i, *t.shape) for i, (name, t) in enumerate(params.items())}

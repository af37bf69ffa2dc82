"""Influence by leave-one-out: the fast forms against the definition, and numbers at the edge."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.mixers.influence import (
    class_losses,
    client_losses,
    row_losses,
    weights_from_losses,
)
from protocol.params import Params
from tests.unit.methods.making import LinearProbe, linear_point, linear_probe

FRESH = torch.ones(5, dtype=torch.float64)
HEAD = ("head.weight", "head.bias")


def slow_row_losses(logits: Tensor, own: Tensor, targets: Tensor) -> Tensor:
    """Methods as defined: replace one column at a time and take torch's cross-entropy."""
    losses = torch.empty(len(logits), own.shape[1], dtype=torch.float64)
    for i in range(len(logits)):
        for c in range(own.shape[1]):
            tried = own.clone()
            tried[:, c] = logits[[j for j in range(len(logits)) if j != i], :, c].mean(dim=0)
            losses[i, c] = F.cross_entropy(tried, targets)
    return losses


@pytest.mark.parametrize(("peers", "size", "classes"), [(2, 1, 2), (5, 7, 4), (3, 16, 10)])
def test_row_losses_equal_one_evaluation_for_each_peer_and_class(
    peers: int, size: int, classes: int
) -> None:
    chance = torch.Generator().manual_seed(peers)
    logits = 3.0 * torch.randn(peers, size, classes, generator=chance, dtype=torch.float64)
    targets = torch.randint(classes - 1, (size,), generator=chance)  # the last class is absent
    fast = row_losses(logits, logits[1], targets)
    torch.testing.assert_close(
        fast, slow_row_losses(logits, logits[1], targets), rtol=0, atol=1e-12
    )


def test_a_row_loss_near_zero_does_not_cancel() -> None:
    # class 0 leads by 40 without the tried row, which lies 60 below: the loss is log(1 + e^-40)
    own = torch.tensor([[40.0, 0.0, -100.0]], dtype=torch.float64)
    tried = torch.tensor([[0.0, 0.0, -20.0]], dtype=torch.float64)
    losses = row_losses(torch.stack([own, tried]), own, torch.tensor([0]))
    assert losses[0, 2].item() == pytest.approx(math.exp(-40) + math.exp(-60), rel=1e-9)


def test_row_losses_of_huge_logits_are_finite() -> None:
    logits = torch.tensor([[[1e6, -1e6]], [[-1e6, 1e6]]], dtype=torch.float64)
    losses = row_losses(logits, logits[0], torch.tensor([1]))
    # row 1 of peer 0 replaced by that of peer 1: both logits are 1e6
    assert losses[0, 1].item() == pytest.approx(math.log(2.0))
    assert losses[1, 1].item() == 2e6
    assert bool(losses.isfinite().all())


def test_class_losses_equal_the_definition_and_average_batches_by_size() -> None:
    points = [linear_point(seed) for seed in range(3)]
    small, large = linear_probe(1, size=3).batches[0], linear_probe(2, size=9).batches[0]
    probe = LinearProbe(small, large)
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for i in range(3):
        others = [p for j, p in enumerate(points) if j != i]
        for c in range(4):
            tried = {n: t.clone() for n, t in points[2].items()}
            for name in HEAD:
                tried[name][c] = torch.stack([p[name][c] for p in others]).mean(dim=0)
            expected[i, c] = (3 * probe.loss(tried, 0) + 9 * probe.loss(tried, 1)) / 12
    found = class_losses(points, points[2], probe)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_client_losses_are_those_of_the_mean_body_of_the_others_under_the_own_classifier() -> None:
    points = [linear_point(seed) for seed in range(4)]
    bodies = [{"body.scale": p["body.scale"]} for p in points]
    own: Params = {name: points[1][name] for name in HEAD}
    probe = linear_probe()
    expected = []
    for i in range(4):
        others = [b["body.scale"] for j, b in enumerate(bodies) if j != i]
        expected.append(probe.loss({"body.scale": torch.stack(others).mean(dim=0), **own}))
    found = client_losses(bodies, own, probe)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_weights_are_powers_of_the_losses() -> None:
    losses = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    weights = weights_from_losses(losses, 3.0, FRESH[:3])
    assert weights.tolist() == pytest.approx([0.1, 0.8, 0.1])  # 1 : 8 : 1


def test_gamma_zero_gives_uniform_weights() -> None:
    losses = torch.tensor([0.1, 5.0, 2.0, 9.0, 1.0], dtype=torch.float64)
    assert weights_from_losses(losses, 0.0, FRESH).tolist() == pytest.approx([0.2] * 5)


def test_each_column_has_weights_of_its_own_that_sum_to_one() -> None:
    losses = torch.tensor([[1.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    weights = weights_from_losses(losses, 1.0, FRESH[:2])
    assert weights[:, 0].tolist() == pytest.approx([0.5, 0.5])
    assert weights[:, 1].tolist() == pytest.approx([0.25, 0.75])


def test_a_stale_neighbour_weighs_by_its_freshness() -> None:
    losses = torch.tensor([2.0, 2.0], dtype=torch.float64)
    freshness = torch.tensor([1.0, 0.25], dtype=torch.float64)
    assert weights_from_losses(losses, 5.0, freshness).tolist() == pytest.approx([0.8, 0.2])


@pytest.mark.parametrize("tiny", [1e-9, 1e-200])
def test_losses_that_powers_would_lose_still_give_weights(tiny: float) -> None:
    weights = weights_from_losses(torch.tensor([tiny, tiny], dtype=torch.float64), 5.0, FRESH[:2])
    assert weights.tolist() == [0.5, 0.5]


def test_losses_are_floored_at_a_picoonat() -> None:
    weights = weights_from_losses(torch.tensor([0.0, 1e-12, 2e-12]).double(), 1.0, FRESH[:3])
    assert weights.tolist() == pytest.approx([0.25, 0.25, 0.5])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_weighs_as_the_largest_finite_one(bad: float) -> None:
    weights = weights_from_losses(torch.tensor([1.0, bad, 2.0]).double(), 1.0, FRESH[:3])
    assert weights.tolist() == pytest.approx([0.2, 0.4, 0.4])


def test_where_no_loss_is_finite_all_weigh_the_same() -> None:
    losses = torch.tensor([[math.nan, 1.0], [math.inf, 3.0]]).double()
    weights = weights_from_losses(losses, 1.0, FRESH[:2])
    assert weights[:, 0].tolist() == [0.5, 0.5]
    assert weights[:, 1].tolist() == pytest.approx([0.25, 0.75])

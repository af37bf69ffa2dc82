"""FedCALM: bodies move where nobody is opposed; its program against brute force."""

from collections.abc import Mapping, Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

from peer.mixers.box import highest_in_box
from peer.mixers.fedcalm import FedCalm, coefficients, freed
from peer.options.mixers import FedCalmOptions
from protocol.round import Contribution, Mixed, Start
from tests.unit.families.hamlet import (
    BODY,
    NAMES,
    OWNED,
    assert_equal,
    examples,
    hamlet,
    initial,
    leaf,
    loss,
    step,
)
from tests.unit.methods.making import contribution, linear_point, linear_probe

MARGIN, CAP = 0.01, 1.0


# -- the naive twin: vectors, loops, and every face of the box tried ------------------------------


def pcgrad(updates: Sequence[Tensor]) -> list[Tensor]:
    found = []
    for i, own in enumerate(updates):
        cosine = {
            j: float(own @ d / (own.norm() * d.norm())) for j, d in enumerate(updates) if j != i
        }
        v = own.clone()
        for j in sorted(cosine, key=lambda j: cosine[j]):
            if v @ updates[j] < 0.0:
                v = v - (v @ updates[j]) / (updates[j] @ updates[j]) * updates[j]
        found.append(v)
    return found


def best_in_box(curvature: Tensor, slope: Tensor, cap: float) -> Tensor:
    """Each multiplier at 0, at its cap or free: solve every case, and keep the best that fits."""
    best, highest = torch.zeros_like(slope), -float("inf")
    for case in product((0.0, cap, None), repeat=len(slope)):
        free = [i for i, value in enumerate(case) if value is None]
        x = torch.tensor([0.0 if v is None else v for v in case], dtype=torch.float64)
        if free:
            rest = slope[free] - curvature[free] @ x
            x[free] = torch.linalg.lstsq(curvature[free][:, free], rest, driver="gelsd").solution
        value = float(x @ slope - x @ curvature @ x / 2)
        if bool((x >= -1e-12).all()) and bool((x <= cap + 1e-12).all()) and value > highest:
            best, highest = x, value
    return best


def step_of(updates: Sequence[Tensor], margin: float, cap: float) -> Tensor:
    v = torch.stack(pcgrad(updates)).mean(dim=0)
    rows = torch.stack(list(updates))
    slope = margin * rows.norm(dim=1) - rows @ v
    return v + best_in_box(rows @ rows.T, slope, cap) @ rows


def drawn(seed: int, peers: int, numbers: int, scale: float = 1.0) -> list[Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return list(scale * torch.randn(peers, numbers, generator=chance, dtype=torch.float64))


def found_step(updates: Sequence[Tensor], margin: float = MARGIN, cap: float = CAP) -> Tensor:
    rows = torch.stack(list(updates))
    mean = torch.full((len(rows),), 1.0 / len(rows), dtype=torch.float64)
    factors, _ = coefficients(rows @ rows.T, mean, margin, torch.full_like(mean, cap))
    return factors @ rows


def test_three_rounds_are_those_of_a_naive_twin() -> None:
    played = hamlet("fedcalm", solver__epochs=2, solver__lr=0.5, mixer__margin=0.3).play()

    weights, theta = {name: initial() for name in OWNED}, initial()
    for round_no in range(3):
        if round_no > 0:
            for n in BODY:
                moves = [(weights[name][n] - theta[n]).flatten() for name in OWNED]
                theta[n] = theta[n] + step_of(moves, 0.3, CAP).view_as(theta[n])
            weights = {name: {**w, **{n: theta[n] for n in BODY}} for name, w in weights.items()}
        for name in OWNED:
            for _ in range(2):
                w = leaf(weights[name])
                weights[name] = step(w, loss(w, examples(name)), NAMES, lr=0.5)

    for name, peer in played.peers.items():
        assert_equal(peer.trained.params, weights[name])
    mixed = played.peers["a"].mixed  # type: ignore[index]  # a name
    assert mixed is not None
    assert mixed.notes["pushed_tensors"] > 0.0  # both stages had work to do


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("numbers", [2, 20])  # with two numbers, four updates depend on each other
def test_a_step_is_the_one_that_brute_force_finds(seed: int, numbers: int) -> None:
    updates = drawn(seed, 4, numbers)
    for margin, cap in ((0.01, 1.0), (0.5, 0.2)):
        expected = step_of(updates, margin, cap)
        torch.testing.assert_close(found_step(updates, margin, cap), expected, rtol=0, atol=1e-9)


def test_short_updates_are_solved_as_exactly_as_long_ones() -> None:
    updates = drawn(3, 4, 20, scale=1e-6)
    expected = step_of([1e6 * u for u in updates], 0.5, 0.2)
    found = found_step(updates, 0.5e-6, 0.2)
    torch.testing.assert_close(1e6 * found, expected, rtol=0, atol=1e-9)


def test_without_multipliers_it_is_the_mean_of_pcgrad() -> None:
    updates = drawn(0, 4, 3)
    expected = torch.stack(pcgrad(updates)).mean(dim=0)
    torch.testing.assert_close(found_step(updates, cap=0.0), expected)


def test_without_conflicts_pcgrad_changes_nothing() -> None:
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    gram = rows @ rows.T
    torch.testing.assert_close(freed(gram, gram.diagonal().sqrt()), torch.eye(3).double())
    torch.testing.assert_close(found_step(list(rows)), rows.mean(dim=0))


def test_two_opposed_updates_lose_what_they_oppose() -> None:
    """(1, 0) and (-1, 1): v_1 = (1/2, 1/2), v_2 = (0, 1); the mean is (1/4, 3/4)."""
    rows = torch.tensor([[1.0, 0.0], [-1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(found_step(list(rows), 0.0), torch.tensor([0.25, 0.75]).double())


def test_every_peer_is_led_by_the_margin_where_multipliers_allow() -> None:
    updates = drawn(1, 3, 20)
    led = found_step(updates, margin=2.0, cap=100.0)
    assert all(float(led @ u / u.norm()) >= 2.0 - 1e-9 for u in updates)


def test_updates_of_zero_take_part_in_the_mean_alone() -> None:
    still, moving = torch.zeros(2).double(), torch.tensor([1.0, 0.0]).double()
    torch.testing.assert_close(found_step([still, moving]), moving / 2)
    torch.testing.assert_close(found_step([still, still]), still)


def test_directions_that_are_nearly_the_same_are_told_apart() -> None:
    """Coordinates alone would take some million sweeps."""
    nearly = torch.tensor([[1.0, 1.0 - 1e-6], [1.0 - 1e-6, 1.0]], dtype=torch.float64)
    expected = torch.tensor([0.3, 0.4], dtype=torch.float64)
    found = highest_in_box(nearly, nearly @ expected, torch.ones(2).double())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_opposed_directions_are_followed_to_a_bound_at_once() -> None:
    """Coordinates alone would come nearer by 0.02 in each sweep."""
    opposed = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    slope = torch.tensor([0.3, -0.28], dtype=torch.float64)
    found = highest_in_box(opposed, slope, torch.tensor([500.0, 900.0]).double())
    assert found.tolist() == pytest.approx([500.0, 499.72], abs=1e-9)


def test_near_duplicates_are_led_as_exactly_as_others() -> None:
    first, second, third = drawn(2, 3, 20)
    updates = [first, first + 1e-6 * second, -0.5 * first + third, first + 1e-6 * third]
    expected = step_of(updates, 2.0, 5.0)
    torch.testing.assert_close(found_step(updates, 2.0, 5.0), expected, rtol=0, atol=1e-7)


# -- the mixer ------------------------------------------------------------------------------------


def mix(
    origin: Mapping[str, Tensor], own: Contribution, *others: Contribution
) -> tuple[Mixed, Mapping[str, Tensor]]:
    mixer = FedCalm(FedCalmOptions(margin=MARGIN, cap=CAP))
    mixed, state = mixer.mix(mixer.init(Start(origin)), own, others, linear_probe())
    return mixed, state["origin"]


def test_classifiers_neither_leave_nor_move() -> None:
    own, other = (contribution(s, linear_point(k)) for k, s in enumerate("ab"))
    shared = FedCalm().share(other.trained, linear_probe().head)
    assert shared is not None
    assert list(shared.params) == ["body.scale"]
    mixed, _ = mix(linear_point(9), own, contribution("b", shared.params))
    assert mixed.start.params["head.weight"] is own.trained.params["head.weight"]
    assert mixed.notes.keys() == {"opposed_pairs", "pushed_tensors"}


def test_it_remembers_where_the_round_begins() -> None:
    own, other = (contribution(s, linear_point(k)) for k, s in enumerate("ab"))
    mixed, origin = mix(linear_point(9), own, other)
    assert origin is mixed.start.params


def test_a_peer_alone_keeps_its_result_and_begins_there() -> None:
    own = contribution("a", linear_point(0))
    mixed, origin = mix(linear_point(9), own)
    assert mixed.start.params is own.trained.params
    assert origin is own.trained.params


def test_a_stale_peer_weighs_less_and_is_pushed_for_less() -> None:
    zero = {"body.scale": torch.zeros(1).double()}
    own = contribution("a", {"body.scale": torch.tensor([3.0]).double()})
    for freshness, expected in ((1.0, 2.0), (0.5, 7 / 3)):  # mean of 3 and 1, by freshness
        other = {"body.scale": torch.tensor([1.0]).double()}
        mixed, _ = mix(zero, own, contribution("b", other, freshness=freshness))
        assert mixed.start.params["body.scale"].item() == pytest.approx(expected)
        assert list(mixed.client_weight.values()) == pytest.approx(
            [1 / (1 + freshness), freshness / (1 + freshness)]
        )


def test_tensors_that_are_pushed_and_pairs_that_oppose_are_counted() -> None:
    zero = {"body.scale": torch.zeros(2).double()}
    own = contribution("a", {"body.scale": torch.tensor([1.0, 0.0]).double()})
    other = contribution("b", {"body.scale": torch.tensor([-1.0, 1e-6]).double()})
    mixed, _ = mix(zero, own, other)
    assert mixed.notes == {"opposed_pairs": 1.0, "pushed_tensors": 1.0}

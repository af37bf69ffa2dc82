"""CRAFT: its step by pseudo-inverse, by identities, and by hand where targets contradict."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from peer.aggregators.craft import Craft
from peer.options.aggregators import CraftOptions
from protocol.params import State, norm
from protocol.round import Aggregated, Start
from tests.unit.aggregators.making import (
    Numbers,
    aggregate,
    arrived,
    draw,
    moved,
    one_tensor,
    sent,
    step_of,
    vector,
)

FREE = 1e6  # a max_norm that does not act
DEGREES = math.pi / 180.0


def craft(**options: object) -> Craft:
    return Craft(CraftOptions(**{"lr": 1.0, "max_norm": FREE, **options}))  # type: ignore[arg-type]  # mixed


def remembered(reference: Numbers) -> State:
    return {"memory": {"w": vector(reference)}, "clock": {"rounds": torch.tensor(1)}}


def told(
    updates: Sequence[Numbers],
    examples: Sequence[int],
    reference: Numbers | None = None,
    **options: object,
) -> tuple[Tensor, Mapping[str, float], Mapping[str, float]]:
    """Step, evidence of the only group, and of the round."""
    start, contributions = one_tensor(updates, num_examples=examples)
    state = None if reference is None else remembered(reference)
    made, _ = aggregate(craft(**options), start, contributions, state)
    return moved(start, made)["w"], made.groups["w"], made.notes


def unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows)


def at_angles(*degrees: float) -> list[list[float]]:
    return [[math.cos(a * DEGREES), math.sin(a * DEGREES)] for a in degrees]


# --- the step ------------------------------------------------------------------------------------


def test_every_peer_advances_by_its_share_of_the_samples() -> None:
    # (2, 0) and (0, 0.5) with 3 and 1 samples: one step of 3/4 along the first, 1/4 along the other
    step, group, notes = told([[2.0, 0.0], [0.0, 0.5]], [3, 1])
    assert step.tolist() == pytest.approx([0.75, 0.25])
    assert group["smallest_alignment"] == pytest.approx(0.25)
    assert group["largest_residual"] == pytest.approx(0.0, abs=1e-12)
    assert notes["conflict_free"] == 1.0


@pytest.mark.parametrize(("peers", "width"), [(2, 40), (6, 40), (6, 6), (9, 5)])
@pytest.mark.parametrize("has_reference", [False, True])
def test_the_step_is_that_of_the_pseudo_inverse(
    peers: int, width: int, has_reference: bool
) -> None:
    updates, examples = draw(peers, peers, width), list(range(1, peers + 1))
    reference = 3.0 * draw(99, width)
    step, _, _ = told(list(updates), examples, reference if has_reference else None)
    ref = (reference / reference.norm()).numpy() if has_reference else np.zeros(width)
    rows, rho = unit(updates).numpy(), np.array(examples) / sum(examples)
    expected = ref + np.linalg.pinv(rows) @ (rho - rows @ ref)
    np.testing.assert_allclose(step.numpy(), expected, rtol=0.0, atol=1e-11)


def test_targets_are_met_whatever_the_reference() -> None:
    updates, examples = draw(1, 5, 30), [1, 2, 3, 4, 10]
    for seed in range(3):
        step, group, _ = told(list(updates), examples, draw(seed, 30))
        reached = unit(updates) @ step
        torch.testing.assert_close(reached, vector([0.05, 0.1, 0.15, 0.2, 0.5]))
        assert group["largest_residual"] < 1e-12


def test_the_length_of_an_update_changes_nothing() -> None:
    updates = draw(2, 4, 20)
    longer = updates * vector([[1.0], [1e-6], [300.0], [7.0]])
    (one, _, _), (two, _, _) = (told(list(u), [1, 2, 3, 4], draw(3, 20)) for u in (updates, longer))
    torch.testing.assert_close(one, two, rtol=0.0, atol=1e-12)


def test_the_reference_acts_only_where_no_update_has_a_component() -> None:
    updates, reference = draw(4, 5, 30), draw(5, 30)
    step, group, _ = told(list(updates), [1] * 5, reference)
    rows = unit(updates)
    seen = torch.linalg.pinv(rows) @ rows
    unseen = reference / reference.norm() - seen @ reference / reference.norm()
    shortest = torch.linalg.pinv(rows) @ torch.full((5,), 0.2, dtype=torch.float64)
    torch.testing.assert_close(step, shortest + unseen)
    assert step.norm().item() ** 2 == pytest.approx(
        (shortest.norm() ** 2 + unseen.norm() ** 2).item()
    )
    assert group["share_of_reference"] == pytest.approx((unseen.norm() / step.norm()).item())


def test_alignment_beyond_the_target_is_taken_away() -> None:
    # both peers already agree with the reference; each still gets 1/2 and no more
    step, _, _ = told([[1.0, 0.1], [1.0, -0.1]], [1, 1], [1.0, 0.0])
    assert (unit(vector([[1.0, 0.1], [1.0, -0.1]])) @ step).tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("updates", "size"),
    [
        (torch.eye(4, dtype=torch.float64), 0.5),  # 1 / sqrt(4)
        (torch.ones(4, 4, dtype=torch.float64), 0.25),  # 1 / 4
        (vector([[1.0, 0.1], [-1.0, 0.1]]), 0.5 / math.sin(math.atan(0.1))),
    ],
)
def test_the_step_is_short_where_peers_agree_and_long_where_they_conflict(
    updates: Tensor, size: float
) -> None:
    step, _, _ = told(list(updates), [1] * len(updates))
    assert step.norm().item() == pytest.approx(size)


def test_steps_of_unrelated_updates_keep_their_direction() -> None:
    # in a steady state of m = 10 unrelated updates the cosine of two steps is 1 / sqrt(1 + 1/m)
    cosines, last = [], draw(0, 4000)
    for seed in range(1, 6):
        step, _, _ = told(list(draw(seed, 10, 4000)), [1] * 10, last)
        cosines.append(torch.cosine_similarity(step, last, dim=0).item())
        last = step
    assert cosines[-1] == pytest.approx(1.0 / math.sqrt(1.1), abs=0.01)


def test_the_order_of_the_peers_does_not_matter() -> None:
    updates, order = draw(6, 6, 50), [3, 0, 5, 1, 4, 2]
    one, _, _ = told(list(updates), [1, 2, 3, 4, 5, 6], draw(7, 50))
    two, _, _ = told([updates[i] for i in order], [i + 1 for i in order], draw(7, 50))
    torch.testing.assert_close(one, two, rtol=0.0, atol=1e-12)


def test_large_layers_lose_no_direction_in_float32() -> None:
    # the usual cut-off of a pseudo-inverse in float32 is 0.28 for a layer of this size
    width = 2_359_296
    chance = torch.Generator().manual_seed(0)
    common = torch.randn(width, generator=chance)
    other = common + 0.1 * torch.randn(width, generator=chance)
    start = Start({"w": torch.zeros(width)})
    contributions = [
        sent("a", {"w": -common}, num_examples=9),
        sent("b", {"w": -other}, num_examples=1),
    ]
    made, _ = aggregate(craft(), start, contributions)
    assert made.groups["w"]["rank"] == 2.0
    assert made.groups["w"]["smallest_alignment"] == pytest.approx(0.1)
    assert made.groups["w"]["largest_residual"] < 1e-9


# --- where targets contradict each other ---------------------------------------------------------


def test_equal_updates_get_the_mean_of_unequal_targets() -> None:
    step, group, notes = told([[1.0, 0.0], [1.0, 0.0]], [9, 1])
    assert step.tolist() == pytest.approx([0.5, 0.0])
    assert group["largest_residual"] == pytest.approx(0.4)
    assert (group["rank"], group["infeasible"], group["in_conflict"]) == (1.0, 1.0, 0.0)
    assert notes["conflict_free"] == 0.0  # nobody is opposed, but not all targets are met
    assert (notes["infeasible_groups"], notes["fallback_lstsq"]) == (1.0, 1.0)


def test_equal_updates_with_equal_targets_are_no_contradiction() -> None:
    step, group, notes = told([[2.0, 0.0], [1.0, 0.0]], [1, 1])
    assert step.tolist() == pytest.approx([0.5, 0.0])
    assert (group["rank"], group["infeasible"]) == (1.0, 0.0)
    assert notes["conflict_free"] == 1.0


def test_of_two_opposite_peers_the_lighter_one_is_moved_against() -> None:
    step, group, notes = told([[1.0, 0.0], [-1.0, 0.0]], [7, 3])
    assert step.tolist() == pytest.approx([0.2, 0.0])
    assert group["smallest_alignment"] == pytest.approx(-0.2)
    assert group["largest_residual"] == pytest.approx(0.5)
    assert (group["in_conflict"], group["infeasible"]) == (1.0, 1.0)
    assert (notes["in_conflict"], notes["conflict_free"]) == (1.0, 0.0)


def test_two_opposite_peers_of_equal_weight_stay() -> None:
    step, group, notes = told([[1.0, 0.5], [-1.0, -0.5]], [1, 1])
    assert step.tolist() == [0.0, 0.0]
    assert (group["in_conflict"], group["largest_residual"]) == (0.0, 0.5)
    assert notes["conflict_free"] == 0.0


@pytest.mark.parametrize("length", ["paper", "projection", "mean-norm"])
def test_three_peers_at_120_degrees_stay(length: str) -> None:
    step, group, _ = told(at_angles(0.0, 120.0, 240.0), [1, 1, 1], length=length)
    assert step.tolist() == [0.0, 0.0]
    assert group["largest_residual"] == pytest.approx(1 / 3)
    assert (group["rank"], group["infeasible"]) == (2.0, 1.0)


def test_more_peers_than_parameters_are_served_by_least_squares() -> None:
    updates = draw(8, 20, 5)
    step, group, notes = told(list(updates), [1] * 20, draw(9, 5))
    rows = unit(updates)
    nearest = torch.linalg.lstsq(rows, torch.full((20, 1), 0.05, dtype=torch.float64)).solution
    torch.testing.assert_close(step, nearest.squeeze(1))
    alignments = rows @ step
    assert group["in_conflict"] == float((alignments < 0.0).sum()) > 0.0
    assert group["smallest_alignment"] == pytest.approx(alignments.min().item())
    assert group["largest_residual"] == pytest.approx((0.05 - alignments).abs().max().item())
    assert notes["conflict_free"] == 0.0


def test_the_residual_does_not_depend_on_the_reference() -> None:
    updates = list(draw(10, 8, 4))
    residuals = [told(updates, [1] * 8, draw(s, 4))[1]["largest_residual"] for s in range(3)]
    assert residuals == pytest.approx([residuals[0]] * 3)


def test_the_nearest_point_of_the_hull_opposes_nobody() -> None:
    # least squares goes against one of these, although 85 degrees is at less than 90 to all
    updates, examples = vector(at_angles(0.0, 80.0, 90.0, 170.0)), [10, 1, 1, 1]
    _, least, _ = told(list(updates), examples)
    step, group, notes = told(list(updates), examples, policy="minnorm")
    assert least["in_conflict"] == 1.0
    assert (unit(updates) @ step).min() >= step @ step - 1e-12
    assert (group["in_conflict"], group["infeasible"]) == (0.0, 1.0)
    assert notes["fallback_minnorm"] == 1.0
    assert group["share_of_reference"] == 0.0


def test_a_group_in_contradiction_can_be_skipped() -> None:
    step, group, notes = told([[1.0, 0.0], [-1.0, 0.1], [0.0, -1.0]], [1, 1, 1], policy="skip")
    assert step.tolist() == [0.0, 0.0]
    assert (group["norm"], group["infeasible"]) == (0.0, 1.0)
    assert group["largest_residual"] == pytest.approx(1 / 3)  # nobody got anything
    assert notes["fallback_skip"] == 1.0


@pytest.mark.parametrize("policy", ["lstsq", "minnorm", "skip"])
def test_a_policy_does_not_act_where_all_targets_can_be_met(policy: str) -> None:
    updates, examples = list(draw(11, 3, 9)), [1, 2, 3]
    one, _, _ = told(updates, examples, draw(12, 9))
    two, _, notes = told(updates, examples, draw(12, 9), policy=policy)
    assert torch.equal(one, two)
    assert notes[f"fallback_{policy}"] == 0.0


# --- what must not blow up -----------------------------------------------------------------------


def test_near_duplicates_with_unequal_targets_are_capped_and_told() -> None:
    # unit updates 1e-3 apart with 9/10 and 1/10: without a bound the step is some 800 long
    updates = at_angles(0.0, 1e-3 / DEGREES)
    free, group, _ = told(updates, [9, 1])
    assert free.norm().item() == pytest.approx(800.0, rel=0.02)
    assert group["capped"] == 0.0
    step, group, notes = told(updates, [9, 1], max_norm=10.0)
    assert step.norm().item() == pytest.approx(10.0)
    torch.testing.assert_close(step / 10.0, free / free.norm())
    assert group["norm"] == pytest.approx(10.0)
    assert group["capped"] == 1.0
    assert notes["capped_groups"] == 1.0
    assert group["conditioning"] == pytest.approx(5e-4, rel=1e-3)


def test_nearly_opposite_peers_are_capped_and_told() -> None:
    updates = at_angles(0.0, 180.0 - 0.01 / DEGREES)
    free, _, _ = told(updates, [1, 1])
    assert free.norm().item() == pytest.approx(100.0, rel=0.01)  # 1 / 0.01
    step, group, notes = told(updates, [1, 1], max_norm=10.0)
    assert step.norm().item() == pytest.approx(10.0)
    assert (group["capped"], group["infeasible"]) == (1.0, 0.0)
    assert group["smallest_alignment"] == pytest.approx(0.05, rel=0.01)
    assert notes["conflict_free"] == 1.0


@pytest.mark.parametrize("apart", [1e-7, 1e-9, 1e-12, 0.0])
def test_duplicates_nearer_than_the_tolerance_count_as_one(apart: float) -> None:
    one = draw(13, 100_000)
    step, group, notes = told([one, one + apart * draw(14, 100_000)], [9, 1])
    assert step.norm().item() == pytest.approx(0.5)
    assert (group["rank"], group["infeasible"], group["capped"]) == (1.0, 1.0, 0.0)
    assert group["largest_residual"] == pytest.approx(0.4)
    assert notes["conflict_free"] == 0.0


def test_the_tolerance_is_of_singular_values() -> None:
    # unit rows at an angle a have singular values whose ratio is tan(a/2), here 0.01
    updates = at_angles(0.0, 2.0 * math.atan(0.01) / DEGREES)
    assert told(updates, [9, 1], tol=0.0099)[1]["rank"] == 2.0
    assert told(updates, [9, 1], tol=0.0101)[1]["rank"] == 1.0
    assert told(updates, [9, 1])[1]["conditioning"] == pytest.approx(0.01)


def test_a_peer_that_sends_no_numbers_is_left_out_of_the_group() -> None:
    lost = [math.nan, 1.0], [math.inf, 0.0]
    step, group, _ = told([[2.0, 0.0], *lost, [0.0, 1.0]], [3, 50, 50, 1])
    assert step.tolist() == pytest.approx([0.75, 0.25])
    assert group["updates_used"] == 2.0


# --- zero rows, single rows ----------------------------------------------------------------------


def test_zero_updates_are_masked_and_the_shares_of_the_others_sum_to_one() -> None:
    step, group, notes = told([[2.0, 0.0], [0.0, 0.0], [0.0, 0.5]], [3, 96, 1])
    assert step.tolist() == pytest.approx([0.75, 0.25])
    assert (group["updates_used"], notes["updates_used"]) == (2.0, 2.0)


def test_a_group_in_which_nobody_moved_stays_and_loses_its_reference() -> None:
    start, contributions = one_tensor([[0.0, 0.0], [0.0, 0.0]])
    made, state = aggregate(craft(), start, contributions, remembered([1.0, 0.0]))
    assert made.start.params["w"].tolist() == [0.0, 0.0]
    assert state["memory"]["w"].tolist() == [0.0, 0.0]
    assert made.notes["empty_groups"] == 1.0
    assert made.groups["w"]["rank"] == 0.0


def test_one_usable_update_is_solved_as_any_number_of_them() -> None:
    # its own direction gets 1, the reference is kept across it
    step, group, notes = told([[0.0, 50.0], [0.0, 0.0]], [1, 1], [3.0, 4.0])
    assert step.tolist() == pytest.approx([0.6, 1.0])
    assert group["share_of_reference"] == pytest.approx(0.6 / math.hypot(0.6, 1.0))
    assert notes["single_groups"] == 1.0


@pytest.mark.parametrize("length", ["paper", "projection", "mean-norm"])
def test_one_usable_update_may_be_taken_as_it_came(length: str) -> None:
    step, group, _ = told(
        [[0.0, 50.0], [0.0, 0.0]], [1, 1], [3.0, 4.0], single="raw", length=length
    )
    assert step.tolist() == pytest.approx([0.0, 50.0])
    assert group["share_of_reference"] == 0.0


def test_one_peer_with_one_step_of_its_size_is_followed_to_where_it_went() -> None:
    start, contributions = one_tensor([[0.6, 0.8]])
    made, _ = aggregate(craft(), start, contributions)
    trained = contributions[0].trained.params["w"]
    torch.testing.assert_close(made.start.params["w"], trained)  # the sign of descent


# --- length, step size, memory -------------------------------------------------------------------


def test_the_length_of_projections_is_that_of_config_with_shares() -> None:
    updates, examples = draw(15, 3, 12), [1, 2, 5]
    paper, _, _ = told(list(updates), examples)
    step, _, _ = told(list(updates), examples, length="projection")
    along = paper / paper.norm()
    size = (vector([0.125, 0.25, 0.625]) * (updates @ along)).sum()
    torch.testing.assert_close(step, size * along)


def test_the_length_of_the_mean_follows_the_updates() -> None:
    updates, examples = draw(16, 3, 12), [1, 2, 5]
    paper, _, _ = told(list(updates), examples)
    step, _, _ = told(list(4.0 * updates), examples, length="mean-norm", max_norm=1e-3)
    size = 4.0 * (vector([0.125, 0.25, 0.625]) * updates.norm(dim=1)).sum()
    torch.testing.assert_close(step, size * paper / paper.norm())  # and is not capped


def test_the_residual_is_that_before_the_length_was_chosen() -> None:
    for length in ("paper", "projection", "mean-norm"):
        _, group, _ = told([[9.0, 0.0], [0.0, 3.0]], [1, 1], length=length)
        assert group["largest_residual"] < 1e-12


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.1, 0.1, 0.1, 0.1, 0.1]),
        (
            {"schedule": "inverse-sqrt", "decay_rounds": 1},
            [0.1 / math.sqrt(t) for t in (1, 2, 3, 4, 5)],
        ),
        ({"schedule": "step", "decay_rounds": 2, "decay": 0.5}, [0.1, 0.1, 0.05, 0.05, 0.025]),
    ],
)
def test_the_step_size_follows_its_schedule(
    options: dict[str, object], expected: list[float]
) -> None:
    aggregator = craft(**{"lr": 0.1, **options})
    start, contributions = one_tensor([[1.0, 0.0]])
    state, lengths = aggregator.init(start), []
    for _ in expected:
        made, state = aggregate(aggregator, start, contributions, state)
        lengths.append(norm(moved(start, made)))
        assert made.notes["lr"] == pytest.approx(lengths[-1])
        assert made.notes["norm"] == pytest.approx(lengths[-1])
    assert lengths == pytest.approx(expected)


def two_layers(**options: object) -> tuple[Start, Aggregated, State]:
    """Three peers, two layers of 6 and 4 numbers, by samples 1 to 2 to 5."""
    start = Start({"a.weight": draw(20, 2, 3), "b.weight": draw(21, 1, 4)})
    updates = [{"a.weight": draw(i, 2, 3), "b.weight": 9.0 * draw(i + 3, 1, 4)} for i in range(3)]
    contributions = arrived(start.params, updates, num_examples=[1, 2, 5])
    aggregator = craft(**options)
    made, state = aggregate(aggregator, start, contributions)
    return start, made, state


def test_memory_is_the_step_before_the_step_size_and_is_read_per_layer_as_unit() -> None:
    start, made, state = two_layers(lr=0.25)
    for name, step in moved(start, made).items():
        torch.testing.assert_close(state["memory"][name], 4.0 * step)
    update = {"a.weight": draw(30, 2, 3), "b.weight": draw(31, 1, 4)}
    contributions = arrived(made.start.params, [update])
    longer = dict(state["memory"])
    longer["a.weight"] = 100.0 * longer["a.weight"]
    one, _ = aggregate(craft(), made.start, contributions, state)
    two, _ = aggregate(craft(), made.start, contributions, {**state, "memory": longer})
    for name, tensor in one.start.params.items():
        torch.testing.assert_close(two.start.params[name], tensor)


def test_layers_that_meet_their_targets_make_a_model_that_does() -> None:
    # u_i . g over the whole model = rho_i (sum over layers of |g_i|) / |g_i|
    _, made, _ = two_layers()
    sizes = [[norm({"": draw(i, 2, 3)}), norm({"": 9.0 * draw(i + 3, 1, 4)})] for i in range(3)]
    shares = [0.125, 0.25, 0.625]
    expected = [p * sum(s) / math.hypot(*s) for p, s in zip(shares, sizes, strict=True)]
    assert made.notes["smallest_alignment"] == pytest.approx(min(expected))
    assert min(expected) >= 0.125
    assert made.notes["largest_residual"] < 1e-12
    assert (made.notes["groups"], made.notes["conflict_free"]) == (2.0, 1.0)


def test_one_contradicting_layer_is_told_beside_a_good_one() -> None:
    start = Start({"a.weight": vector([[0.0, 0.0]]), "b.weight": vector([[0.0, 0.0]])})
    updates = [
        {"a.weight": [[1.0, 0.0]], "b.weight": [[5.0, 0.0]]},
        {"a.weight": [[-1.0, 0.0]], "b.weight": [[0.0, 5.0]]},
    ]
    made, _ = aggregate(craft(), start, arrived(start.params, updates, num_examples=[7, 3]))
    assert made.groups["a"]["in_conflict"] == 1.0
    assert made.groups["b"]["infeasible"] == 0.0
    # the lighter peer: (-0.2 * 1 + 0.3 * 5) / sqrt(26) for the whole model, nobody is opposed
    assert made.notes["smallest_alignment"] == pytest.approx(1.3 / math.sqrt(26.0))
    assert made.notes["in_conflict"] == 0.0
    assert made.notes["infeasible_groups"] == 1.0
    assert made.notes["conflict_free"] == 0.0
    # missed: 0.5 in one layer of length 1, of a model of length sqrt(26)
    assert made.notes["largest_residual"] == pytest.approx(0.5 / math.sqrt(26.0))


def test_one_group_for_all_is_the_method_without_layers() -> None:
    start, made, _ = two_layers(groups="global")
    rows = torch.stack([torch.cat([draw(i, 6), 9.0 * draw(i + 3, 4)]) for i in range(3)])
    expected = torch.linalg.pinv(unit(rows)) @ vector([0.125, 0.25, 0.625])
    found = torch.cat([t.flatten() for t in moved(start, made).values()])
    torch.testing.assert_close(found, expected)


def test_a_step_below_rounding_is_none() -> None:
    assert step_of(craft(), [[1.0, 0.0], [-1.0, 1e-16]], num_examples=[1, 1]).tolist() == [0.0, 0.0]

"""Arithmetic of named tensors: by hand, and against its naive twin."""

import math

import pytest
import torch

from protocol.errors import LayoutError
from protocol.params import (
    NOTHING,
    Params,
    add,
    combine,
    dot,
    leave_one_out,
    norm,
    pairwise,
    scale,
    sub,
    total,
    weighted_mean,
    zeros_like,
)


def point(*values: float) -> Params:
    return {"a": torch.tensor(values), "b": torch.tensor([[values[0]]])}


def noise(seed: int, dtype: torch.dtype = torch.float32) -> Params:
    chance = torch.Generator().manual_seed(seed)
    shapes = {"w": (3, 4), "b": (3,), "s": ()}
    return {n: torch.randn(s, generator=chance).to(dtype) for n, s in shapes.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_fast_sum_equals_its_naive_twin(dtype: torch.dtype) -> None:
    left, right = noise(1, dtype), noise(2, dtype)
    fast = add(left, right, factor=-0.25)
    slow = pairwise(lambda a, b: torch.add(a, b, alpha=-0.25), left, right)
    assert list(fast) == list(left)
    for name in left:
        assert torch.equal(fast[name], slow[name])


def test_sums_match_names_not_positions() -> None:
    left = {"a": torch.tensor(1.0), "b": torch.tensor(2.0)}
    right = {"b": torch.tensor(10.0), "a": torch.tensor(100.0)}
    assert {n: t.item() for n, t in add(left, right).items()} == {"a": 101.0, "b": 12.0}
    assert {n: t.item() for n, t in sub(left, right).items()} == {"a": -99.0, "b": -8.0}


def test_nothing_plus_nothing_is_nothing() -> None:
    assert add(NOTHING, NOTHING) == {}
    assert norm(NOTHING) == 0.0


def test_points_of_other_layout_are_refused_by_name() -> None:
    with pytest.raises(LayoutError, match="names differ: b, c"):
        add({"a": torch.zeros(1), "b": torch.zeros(1)}, {"a": torch.zeros(1), "c": torch.zeros(1)})
    with pytest.raises(LayoutError, match=r"a: \(2,\) against \(3,\)"):
        sub({"a": torch.zeros(2)}, {"a": torch.zeros(3)})
    with pytest.raises(LayoutError, match="a:"):
        combine([{"a": torch.zeros(2)}, {"a": torch.zeros(3)}], [0.5, 0.5])


def test_norm_and_dot_run_over_all_tensors() -> None:
    assert norm(point(3.0, 4.0)) == pytest.approx(math.sqrt(9 + 16 + 9))
    assert dot(point(1.0, 2.0), point(3.0, 4.0)) == 3 + 8 + 3


def test_norm_of_huge_float32_does_not_overflow() -> None:
    assert norm({"a": torch.full((4,), 1e30)}) == pytest.approx(2e30)


def test_scale_and_zeros_keep_the_layout() -> None:
    assert scale(point(1.0, 2.0), 3.0)["a"].tolist() == [3.0, 6.0]
    assert zeros_like(point(1.0, 2.0))["b"].tolist() == [[0.0]]


def test_leaving_one_out_of_equal_points_gives_that_point_bit_for_bit() -> None:
    points = [noise(3)] * 5
    left = leave_one_out(total(points), points[2], 5)
    assert all(torch.equal(left[name], points[0][name]) for name in left)


def test_leaving_one_out_is_the_mean_of_the_others() -> None:
    points = [point(1.0, 0.0), point(2.0, 5.0), point(6.0, 7.0)]
    left = leave_one_out(total(points), points[0], 3)
    assert left["a"].tolist() == [4.0, 6.0]
    assert left["a"].dtype == torch.float32
    with pytest.raises(ValueError, match="count must be >= 2"):
        leave_one_out(total(points[:1]), points[0], 1)


def test_the_sum_of_no_points_is_refused() -> None:
    with pytest.raises(ValueError, match="no layout"):
        total([])


def test_weighted_mean_by_hand() -> None:
    mean = weighted_mean([(point(0.0, 4.0), 1.0), (point(4.0, 0.0), 3.0), (point(9.0, 9.0), 0.0)])
    assert mean["a"].tolist() == [3.0, 1.0]


def test_the_mean_of_equal_points_is_that_point_bit_for_bit() -> None:
    mean = weighted_mean([(noise(4), weight) for weight in (0.1, 0.7, 13.0)])
    assert all(torch.equal(mean[name], tensor) for name, tensor in noise(4).items())


def test_of_integer_buffers_the_largest_stands() -> None:
    mean = weighted_mean([({"n": torch.tensor(n)}, 1.0) for n in (3, 9, 5)])
    assert mean["n"].item() == 9


@pytest.mark.parametrize("weights", [(-1.0, 2.0), (math.nan, 1.0), (math.inf, 1.0), (0.0, 0.0)])
def test_weights_that_are_none_are_refused(weights: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        weighted_mean([(point(1.0), weight) for weight in weights])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_combine_takes_any_weights_and_keeps_the_dtype(dtype: torch.dtype) -> None:
    points = [
        {"a": torch.tensor([1.0, 2.0], dtype=dtype)},
        {"a": torch.tensor([3.0, 1.0]).to(dtype)},
    ]
    mixed = combine(points, [2.0, -1.0])
    assert mixed["a"].tolist() == [-1.0, 3.0]
    assert mixed["a"].dtype == dtype


def test_combine_of_equal_points_is_that_point() -> None:
    mixed = combine([noise(5)] * 3, [0.1, 0.2, 0.7])
    assert all(torch.equal(mixed[name], tensor) for name, tensor in noise(5).items())


def test_combine_needs_a_weight_for_each_point() -> None:
    with pytest.raises(ValueError, match="2 points with 1 weights"):
        combine([point(1.0), point(2.0)], [1.0])


def test_no_function_writes_to_its_arguments() -> None:
    points = [noise(6), noise(7), noise(8)]
    before = [{name: tensor.clone() for name, tensor in p.items()} for p in points]
    add(points[0], points[1], factor=2.0)
    scale(points[0], 2.0)
    leave_one_out(total(points), points[1], 3)
    weighted_mean((p, 1.0) for p in points)
    combine(points, [0.2, 0.3, 0.5])
    for p, old in zip(points, before, strict=True):
        assert all(torch.equal(p[name], old[name]) for name in old)


def test_gradients_are_not_recorded() -> None:
    leaf = {"a": torch.ones(2, requires_grad=True)}
    assert not add(leaf, leaf)["a"].requires_grad
    assert not combine([leaf, leaf], [0.5, 0.5])["a"].requires_grad

"""Updates as rows: inner products and sums by blocks, against the whole matrix at once."""

import pytest
import torch

from peer.aggregators.conflict import conflicts
from peer.aggregators.step import kept, shares, stepped
from peer.aggregators.updates import Updates
from protocol.params import Params
from protocol.round import Start, descent
from tests.unit.aggregators.making import arrived, draw, sent, vector

START = {"a": draw(0, 3, 4), "b": draw(1, 5)}
UPDATES = [{"a": draw(10 + i, 3, 4), "b": draw(20 + i, 5)} for i in range(3)]
PAST = {"a": draw(30, 3, 4), "b": draw(31, 5)}


def flat(params: Params) -> torch.Tensor:
    return torch.cat([params[name].flatten() for name in params])


def rows() -> torch.Tensor:
    return torch.stack([flat({n: vector(u[n]) for n in START}) for u in [*UPDATES, PAST]])


def updates() -> Updates:
    return Updates.of(Start(START), arrived(START, UPDATES), [PAST])


def test_rows_are_descents() -> None:
    contributions = arrived(START, UPDATES)
    alone = torch.eye(3, dtype=torch.float64)
    for i, contribution in enumerate(contributions):
        found = Updates.of(Start(START), contributions).combine(alone[i])
        for name, tensor in descent(Start(START), contribution).items():
            assert torch.equal(found[name], tensor)


def test_inner_products_are_those_of_the_matrix() -> None:
    torch.testing.assert_close(updates().gram(), rows() @ rows().T)
    torch.testing.assert_close(updates().squares(), rows().square().sum(dim=1))
    part = rows()[:, 12:]
    torch.testing.assert_close(updates().gram(["b"]), part @ part.T)
    torch.testing.assert_close(updates().along(PAST), rows() @ rows()[3])
    torch.testing.assert_close(updates().along({"b": PAST["b"]}), part @ part[3])


def test_sums_are_those_of_the_matrix_in_the_model_s_layout() -> None:
    weights = vector([0.5, -2.0, 0.0, 3.0])
    found = updates().combine(weights)
    torch.testing.assert_close(flat(found), weights @ rows())
    assert [tuple(t.shape) for t in found.values()] == [(3, 4), (5,)]
    assert list(updates().combine(weights, ["b"])) == ["b"]


def test_a_row_that_weighs_nothing_may_hold_anything() -> None:
    lost = sent("d", {"a": torch.full((3, 4), torch.nan), "b": torch.full((5,), torch.inf)})
    found = Updates.of(Start(START), [*arrived(START, UPDATES), lost])
    sums = found.combine(vector([1.0, 1.0, 1.0, 0.0]))
    torch.testing.assert_close(flat(sums), rows()[:3].sum(dim=0))


def test_a_tensor_larger_than_a_block_is_read_in_blocks() -> None:
    size = (1 << 20) + 7  # of two rows, a block holds 1 << 20 numbers each
    start = {"w": torch.zeros(size)}
    one, other = torch.ones(size), torch.arange(size, dtype=torch.float32) % 4.0
    found = Updates(start, [{"w": -one}, {"w": -other}])
    squares = (0 + 1 + 4 + 9) * (size // 4) + 0 + 1 + 4
    sums = (0 + 1 + 2 + 3) * (size // 4) + 0 + 1 + 2
    assert found.gram().tolist() == [[size, sums], [sums, squares]]
    assert found.along({"w": one}).tolist() == [size, sums]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_differences_are_exact_whatever_the_parameters_are_in(dtype: torch.dtype) -> None:
    start, end = torch.tensor([1000.0], dtype=dtype), torch.tensor([0.0078125], dtype=dtype)
    found = Updates({"w": start}, [{"w": end}])
    assert found.combine(torch.ones(1, dtype=torch.float64))["w"].item() == 999.9921875


def test_a_tensor_that_is_not_contiguous_is_read_in_its_order() -> None:
    start = {"w": draw(0, 4, 3).T}
    found = Updates(start, [{"w": torch.zeros(3, 4, dtype=torch.float64)}])
    sums = found.combine(torch.ones(1, dtype=torch.float64))
    assert torch.equal(sums["w"], start["w"])
    assert found.along(sums).item() == pytest.approx(start["w"].square().sum().item())


def test_shares_are_by_samples_of_those_present() -> None:
    assert shares(arrived(START, UPDATES, num_examples=[1, 2, 5])).tolist() == [0.125, 0.25, 0.625]


def test_a_step_is_taken_in_float64_and_rounded_once() -> None:
    start = Start({"w": torch.tensor([1.0])})
    direction = {"w": vector([2.0**-26])}
    end = stepped(start, direction, [sent("a", start.params)], lr=3.0)
    assert end.params["w"].item() == 1.0 - 2.0**-24  # 3/4 of the spacing below 1, rounded to one


def test_state_keeps_the_order_of_the_model() -> None:
    direction = {"b": PAST["b"], "a": PAST["a"]}
    assert list(kept(direction, Start(START))) == ["a", "b"]


def test_conflicts_are_counted_over_those_who_moved() -> None:
    moves = [{"w": [2.0, 0.0]}, {"w": [-1.0, 0.0]}, {"w": [0.0, 0.0]}, {"w": [0.0, 3.0]}]
    start = {"w": vector([0.0, 0.0])}
    found = Updates.of(Start(start), arrived(start, moves), [start])
    assert conflicts(found, {"w": vector([3.0, 4.0])}, lr=0.5) == {
        "norm": 2.5,
        "updates_used": 3.0,
        "smallest_alignment": -3.0,
        "in_conflict": 1.0,
    }


def test_an_alignment_within_rounding_of_zero_is_no_conflict() -> None:
    start = {"w": vector([0.0, 0.0])}
    found = Updates.of(Start(start), arrived(start, [{"w": [1.0, 0.0]}]))
    assert conflicts(found, {"w": vector([-1e-9, 1.0])})["in_conflict"] == 0.0
    assert conflicts(found, {"w": vector([-1e-6, 1.0])})["in_conflict"] == 1.0

"""Weights: the simplex, and the nearest point of a hull, against brute force and by hand."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from peer.aggregators.convex import nearest_to_origin, onto_simplex
from tests.unit.aggregators.making import draw, vector


def nearest(points: Tensor) -> Tensor:
    return nearest_to_origin(points @ points.T)


def nearest_of_all_faces(points: Tensor) -> Tensor:
    """Try every face: the nearest point of its flat counts where it lies inside."""
    best = points[points.square().sum(dim=1).argmin()]
    for size in range(2, len(points) + 1):
        for face in combinations(range(len(points)), size):
            corners = points[list(face)]
            edges = (corners[1:] - corners[0]).T
            along = torch.linalg.lstsq(edges, -corners[0].unsqueeze(1)).solution.squeeze(1)
            found = corners[0] + edges @ along
            inside = along.min() >= 0.0 and along.sum() <= 1.0
            if inside and found.norm() < best.norm():
                best = found
    return best


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5])
@pytest.mark.parametrize(("count", "width"), [(1, 3), (2, 3), (4, 6), (6, 8)])
def test_the_nearest_point_is_that_of_the_best_face(count: int, width: int, shift: float) -> None:
    points = draw(count, count, width) + shift
    weights = nearest(points)
    torch.testing.assert_close(weights @ points, nearest_of_all_faces(points), rtol=0, atol=1e-9)


@pytest.mark.parametrize("width", [2, 5, 60])
def test_no_point_of_the_hull_is_opposed(width: int) -> None:
    points = draw(width, 40, width) + 0.3
    points[1], points[3] = points[0], -points[2]
    weights = nearest(points)
    x = weights @ points
    assert weights.min() >= 0.0
    assert weights.sum().item() == pytest.approx(1.0)
    assert (points @ x).min() >= x @ x - 1e-10 * points.square().sum(dim=1).max()


def test_a_corner_that_was_passed_is_left() -> None:
    # the segment from (1, 0) to (-2, 1) is nearest to the origin at (0.1, 0.3)
    points = vector([[1.0, 0.0], [-2.0, 1.0], [0.5, 2.0]])
    weights = nearest(points)
    assert weights.tolist() == pytest.approx([0.7, 0.3, 0.0])
    assert (weights @ points).tolist() == pytest.approx([0.1, 0.3])


def test_the_origin_inside_is_met() -> None:
    points = vector([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    weights = nearest(points)
    assert weights.tolist() == pytest.approx([0.5, 0.25, 0.25])
    assert (weights @ points).norm() < 1e-12


def test_points_at_the_origin_weigh_something() -> None:
    assert nearest(torch.zeros(2, 3, dtype=torch.float64)).sum() == 1.0


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ([1.3, 0.2], [1.0, 0.0]),  # a published projection leaves a sum of 1.05
        ([0.5, 0.5], [0.5, 0.5]),
        ([0.6, 0.6], [0.5, 0.5]),
        ([2.0, 1.9, -5.0], [0.55, 0.45, 0.0]),
        ([-3.0], [1.0]),
        ([0.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_the_simplex_by_hand(point: list[float], expected: list[float]) -> None:
    assert onto_simplex(vector(point)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_the_projection_lies_on_the_simplex_and_is_the_nearest(seed: int) -> None:
    point = 3.0 * draw(seed, 7)
    found = onto_simplex(point)
    assert found.min() >= 0.0
    assert found.sum().item() == pytest.approx(1.0)
    corners = torch.eye(7, dtype=torch.float64)
    assert ((corners - found) @ (point - found)).max() <= 1e-12  # no corner lies on the far side

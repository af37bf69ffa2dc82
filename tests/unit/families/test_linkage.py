"""Average linkage on cosine distance, against an implementation that looks at all pairs anew."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from peer.mixers.linkage import clusters, cosine_distances


def naive(distances: Tensor, cut: float) -> list[list[int]]:
    found = [[i] for i in range(len(distances))]
    while len(found) > 1:
        means = {
            (i, j): sum(float(distances[p, q]) for p in found[i] for q in found[j])
            / (len(found[i]) * len(found[j]))
            for i, j in combinations(range(len(found)), 2)
        }
        i, j = min(means, key=lambda pair: means[pair])
        if means[i, j] > cut:
            break
        found[i] = sorted(found[i] + found.pop(j))
    return sorted(found)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cut", [0.0, 0.2, 0.6, 1.0, 2.0])
def test_clusters_are_those_that_looking_at_all_pairs_finds(seed: int, cut: float) -> None:
    chance = torch.Generator().manual_seed(seed)
    distances = cosine_distances(torch.randn(9, 3, generator=chance))
    assert clusters(distances, cut) == naive(distances, cut)


def test_directions_count_and_lengths_do_not() -> None:
    points = torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 1e-30], [-2.0, 0.0]])
    expected = torch.tensor([[0, 0, 1, 2], [0, 0, 1, 2], [1, 1, 0, 1], [2, 2, 1, 0]]).double()
    torch.testing.assert_close(cosine_distances(points), expected)


def test_a_vector_of_zeros_is_at_right_angles_to_all() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert cosine_distances(points).tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]


def test_huge_and_tiny_numbers_have_directions() -> None:
    points = torch.tensor([[1e38, 1e38], [1e-38, 1e-38]])
    assert cosine_distances(points)[0, 1].item() < 1e-6


def test_one_alone_is_a_cluster() -> None:
    assert clusters(torch.zeros(1, 1).double(), 0.3) == [[0]]


def test_pairs_join_before_their_pairs_do() -> None:
    """Angles 0, 10, 90 and 100 degrees: pairs at 0.015; the pairs at 1.0 on average."""
    angles = torch.deg2rad(torch.tensor([0.0, 10.0, 90.0, 100.0]).double())
    distances = cosine_distances(torch.stack([angles.cos(), angles.sin()], dim=1))
    assert clusters(distances, 0.3) == [[0, 1], [2, 3]]
    assert clusters(distances, 0.01) == [[0], [1], [2], [3]]
    assert clusters(distances, 1.5) == [[0, 1, 2, 3]]

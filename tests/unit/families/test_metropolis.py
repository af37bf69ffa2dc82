"""Metropolis-Hastings weights: what a neighbour weighs follows from degrees alone."""

from dataclasses import replace

import pytest
import torch

from peer.mixers.metropolis import Metropolis
from protocol.ids import PeerId
from protocol.params import NO_STATE
from protocol.round import Contribution, Mixed
from tests.unit.families.hamlet import A, B, C
from tests.unit.methods.making import contribution, linear_probe


def says(sender: str, value: float, degree: int, freshness: float = 1.0) -> Contribution:
    made = contribution(sender, {"w": torch.tensor([value])}, freshness=freshness)
    return replace(made, degree=degree)


def mixed(own: Contribution, *others: Contribution) -> Mixed:
    found, _ = Metropolis().mix(NO_STATE, own, others, linear_probe())
    return found


def test_an_edge_weighs_by_the_larger_of_its_degrees() -> None:
    found = mixed(says("b", 0.0, 2), says("a", 4.0, 1), says("c", 8.0, 3))
    assert list(found.client_weight) == [A, B, C]
    assert list(found.client_weight.values()) == pytest.approx([1 / 3, 5 / 12, 1 / 4])
    assert found.start.params["w"].item() == pytest.approx(4 / 3 + 8 / 4)


def test_who_is_absent_leaves_its_weight_to_the_peer_itself() -> None:
    found = mixed(says("b", 0.0, 2), says("a", 4.0, 1))
    assert found.client_weight == pytest.approx({A: 1 / 3, B: 2 / 3})


def test_a_half_fresh_neighbour_gives_the_other_half_of_its_weight_to_the_peer_itself() -> None:
    found = mixed(says("b", 0.0, 1), says("a", 4.0, 1, freshness=0.5))
    assert found.client_weight == pytest.approx({A: 0.25, B: 0.75})


def test_no_weight_is_negative_where_more_came_than_the_own_degree_says() -> None:
    found = mixed(says("d", 0.0, 0), *(says(s, 1.0, 0) for s in "abc"))
    assert found.client_weight == pytest.approx(dict.fromkeys((*"abcd",), 0.25))


def test_mixing_alone_ends_at_the_plain_mean_on_a_star() -> None:
    """Node 0 has three neighbours, each of the others one; weights by size would favour it."""
    values, edges = [0.0, 1.0, 2.0, 5.0], {0: (1, 2, 3), 1: (0,), 2: (0,), 3: (0,)}
    for _ in range(200):
        values = [
            mixed(
                says(str(i), values[i], len(edges[i])),
                *(says(str(j), values[j], len(edges[j])) for j in edges[i]),
            )
            .start.params["w"]
            .item()
            for i in edges
        ]
    assert values == pytest.approx([2.0] * 4, abs=1e-4)


def test_equal_degrees_weigh_the_same() -> None:
    everyone = [says(s, float(k), 2) for k, s in enumerate("abc")]
    assert list(mixed(*everyone).client_weight.values()) == pytest.approx([1 / 3] * 3)
    assert isinstance(next(iter(mixed(*everyone).client_weight)), str)
    assert PeerId("a") in mixed(*everyone).client_weight

"""Who helps whom: ratios and p-values that can be redone on paper."""

import math

import numpy as np
import pytest

from peer.affinity import MAX_LABELLINGS, Affinity, affinity, camp_contrast, domain_contrast


def of(cells: list[list[float]], camps: tuple[int, ...], domains: str) -> Affinity:
    peers = tuple(f"p{number}" for number in range(len(cells)))
    return Affinity(peers, camps, tuple(domains), np.array(cells))


def blocks(labels: tuple[int, ...], same: float, other: float) -> list[list[float]]:
    return [[same if a == b else other for b in labels] for a in labels]


def test_camps_that_show_reach_the_least_p_that_four_peers_can_give() -> None:
    # two camps of two: 4! / (2! 2!) = 6 labellings, two of them name the true halves
    contrast = camp_contrast(of(blocks((0, 0, 1, 1), 1.5, 0.25), (0, 0, 1, 1), "abcd"))
    assert contrast is not None
    assert (contrast.same, contrast.other, contrast.ratio) == (1.5, 0.25, 6.0)
    assert contrast.p_value == 2 / 6
    assert (contrast.num_labellings, contrast.enumerated) == (6, True)


def test_eight_peers_in_two_camps_have_seventy_labellings() -> None:
    camps = (0, 0, 0, 0, 1, 1, 1, 1)
    contrast = camp_contrast(of(blocks(camps, 2.0, 1.0), camps, "aabbaabb"))
    assert contrast is not None
    assert contrast.p_value == 2 / 70


def test_the_ratio_is_of_means_and_leaves_the_diagonal_out() -> None:
    # same camp: 0.5 and 1.5; other camp: 0.25, 0.25, 1.0, 2.5 - by hand
    cells = [[9.0, 0.5, 0.25], [1.5, 9.0, 1.0], [0.25, 2.5, 9.0]]
    contrast = camp_contrast(of(cells, (0, 0, 1), "abc"))
    assert contrast is not None
    assert (contrast.same, contrast.other) == (1.0, 1.0)
    # the three labellings pair (p0 p1), (p0 p2), (p1 p2): means 1.0, 0.25, 1.75 against the others'
    assert contrast.num_labellings == 3
    assert contrast.p_value == 2 / 3


def test_camps_that_do_not_matter_give_p_one() -> None:
    contrast = camp_contrast(of(blocks((0, 0, 1, 1), 1.0, 1.0), (0, 0, 1, 1), "abcd"))
    assert contrast is not None
    assert (contrast.ratio, contrast.p_value) == (1.0, 1.0)


def test_a_camp_that_gets_nothing_of_the_other_has_an_infinite_ratio() -> None:
    contrast = camp_contrast(of(blocks((0, 0, 1, 1), 2.0, 0.0), (0, 0, 1, 1), "abcd"))
    assert contrast is not None
    assert math.isinf(contrast.ratio)
    assert contrast.p_value == 2 / 6


def test_domains_are_compared_within_camps_only() -> None:
    # cells of other camps are absurd and do not count
    domains, camps = "aabbaabb", (0, 0, 0, 0, 1, 1, 1, 1)
    cells = [
        [
            100.0 if camps[i] != camps[j] else 3.0 if domains[i] == domains[j] else 2.0
            for j in range(8)
        ]
        for i in range(8)
    ]
    contrast = domain_contrast(of(cells, camps, domains))
    assert contrast is not None
    assert (contrast.same, contrast.other, contrast.ratio) == (3.0, 2.0, 1.5)
    # in each camp 4! / (2! 2!) = 6 ways to deal a a b b, of which 2 keep the true pairs
    assert contrast.num_labellings == 36
    assert contrast.p_value == 4 / 36


def test_without_two_kinds_of_pairs_there_is_no_contrast() -> None:
    assert camp_contrast(of(blocks((0, 0), 1.0, 1.0), (0, 0), "ab")) is None
    assert domain_contrast(of(blocks((0, 0), 1.0, 1.0), (0, 0), "ab")) is None
    assert camp_contrast(affinity({}, {}, {})) is None


def test_cells_that_were_never_in_a_mix_do_not_count() -> None:
    nan = math.nan
    cells = [[nan, 2.0, nan, 1.0], [2.0, nan, 1.0, nan], [nan, 1.0, nan, 2.0], [1.0, nan, 2.0, nan]]
    contrast = camp_contrast(of(cells, (0, 0, 1, 1), "abcd"))
    assert contrast is not None
    assert (contrast.same, contrast.other) == (2.0, 1.0)
    assert contrast.p_value == 2 / 6  # the third way to pair the peers has no pair of a kind


@pytest.mark.parametrize("seed", range(3))
def test_many_peers_are_drawn_and_not_enumerated(seed: int) -> None:
    camps = (0,) * 10 + (1,) * 10  # 184,756 labellings
    contrast = camp_contrast(of(blocks(camps, 2.0, 1.0), camps, "a" * 20), seed=seed)
    assert contrast is not None
    assert not contrast.enumerated
    assert contrast.num_labellings == MAX_LABELLINGS
    assert 1 / MAX_LABELLINGS <= contrast.p_value <= 4 / MAX_LABELLINGS


def test_peers_are_grouped_by_camp_then_domain() -> None:
    relative = {
        "a": {"a": 0.5, "b": 1.5},
        "b": {"a": 1.0, "c": 1.0},
        "c": {"c": 2.0, "gone": 3.0},
    }
    whole = affinity(relative, {"a": 1, "b": 0, "c": 0}, {"a": "x", "b": "y", "c": "x"})
    assert whole.peers == ("c", "b", "a")
    assert (whole.camps, whole.domains) == ((0, 0, 1), ("x", "y", "x"))
    nan = math.nan
    np.testing.assert_equal(whole.cells, [[2.0, nan, nan], [1.0, nan, 1.0], [nan, 1.5, 0.5]])

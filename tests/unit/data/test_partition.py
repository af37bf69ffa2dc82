"""Deals that can be redone on paper; what holds for all of them is in tests/property."""

import numpy as np
import pytest

from peer.data.allot import Allotment, Stock, Wanted, allot
from peer.data.camps import camp_of, namings
from peer.data.layout import Rows
from peer.data.partition import Partition, apportion, deal, parse_partition
from protocol.errors import ConfigError, DataError


def hands(labels: Rows, partition: str, peers: int, floor: int = 1) -> list[Rows]:
    return deal(
        labels,
        np.zeros_like(labels),
        peers=peers,
        partition=parse_partition(partition),
        min_samples=floor,
        rng=np.random.default_rng(0),
    )


def test_what_a_person_types_is_read() -> None:
    assert parse_partition("domain") == Partition("domain")
    assert parse_partition("dirichlet:0.3") == Partition("dirichlet", 0.3)
    assert parse_partition("pathological:2") == Partition("pathological", 2)
    assert str(parse_partition("quantity:0.5")) == "quantity:0.5"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "allowed are domain, iid, dirichlet:ALPHA"),
        ("even", "is unknown"),
        ("iid:3", "is unknown"),
        ("dirichlet", "ALPHA must be in"),
        ("dirichlet:0", "ALPHA must be in"),
        ("dirichlet:nan", "ALPHA must be in"),
        ("quantity:inf", "for example quantity:0.3"),
        ("pathological:1.5", "whole number"),
        ("pathological:0", "whole number"),
    ],
)
def test_a_mistyped_partition_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_partition(text)


def test_shares_go_by_largest_remainder() -> None:
    assert apportion(7, [1, 1, 1]).tolist() == [3, 2, 2]
    assert apportion(10, [0.55, 0.0, 0.45]).tolist() == [6, 0, 4]  # 5.5 and 4.5: the first
    assert apportion(0, [1, 2]).tolist() == [0, 0]


def test_iid_gives_each_peer_the_same_mix() -> None:
    labels = np.repeat([0, 1], [8, 4])
    for hand in hands(labels, "iid", 4):
        assert np.bincount(labels[hand]).tolist() == [2, 1]


def test_pathological_gives_each_peer_k_classes_and_each_class_as_many_holders() -> None:
    labels = np.repeat(np.arange(10), 100)
    dealt = hands(labels, "pathological:2", 10)
    held = [np.bincount(labels[hand], minlength=10) for hand in dealt]
    assert all((counts > 0).sum() == 2 for counts in held)
    assert (np.stack(held) > 0).sum(axis=0).tolist() == [2] * 10  # 10 peers x 2 / 10 classes
    assert [len(hand) for hand in dealt] == [100] * 10


def test_dirichlet_with_a_large_alpha_is_even_and_with_a_small_one_is_not() -> None:
    labels = np.repeat(np.arange(4), 100)
    even = [np.bincount(labels[h], minlength=4) for h in hands(labels, "dirichlet:1e6", 4)]
    skewed = [np.bincount(labels[h], minlength=4) for h in hands(labels, "dirichlet:0.01", 4)]
    assert np.abs(np.stack(even) - 25).max() <= 1
    assert np.stack(skewed).max() >= 90


def test_a_peer_that_falls_short_is_filled_up_to_the_minimum() -> None:
    labels = np.repeat(np.arange(4), 100)
    sizes = [len(hand) for hand in hands(labels, "quantity:0.0001", 4, floor=10)]
    assert sorted(sizes) == [10, 10, 10, 370]


def test_a_minimum_that_cannot_be_kept_is_refused_with_the_sum() -> None:
    with pytest.raises(DataError, match=r"3 peers with at least 5 .* need 15, there are 14"):
        hands(np.zeros(14, np.int64), "iid", 3, floor=5)
    with pytest.raises(DataError, match="needs 3 classes with training samples, there are 2"):
        hands(np.array([0, 1, 0, 1]), "pathological:3", 2)


def test_camps_share_no_name_for_any_class_and_camp_0_keeps_the_true_ones() -> None:
    drawn = np.array(namings(10, 10, np.random.default_rng(1)))
    assert drawn[0].tolist() == list(range(10))
    assert (np.sort(drawn, axis=0) == np.arange(10)[:, None]).all()
    assert (np.sort(drawn, axis=1) == np.arange(10)).all()
    with pytest.raises(ConfigError, match=r"camps is 3, must be from 1 to .* 2"):
        namings(2, 3, np.random.default_rng(0))


def test_two_peers_of_a_domain_are_in_different_camps() -> None:
    camps = [camp_of(peer, num_domains=4, num_camps=2) for peer in range(8)]
    assert camps == [0, 1, 0, 1, 1, 0, 1, 0]  # domains 0 1 2 3 0 1 2 3


def stock(per_cell: int, domains: int, classes: int = 2, official: int = 0) -> Stock:
    """Each class of each domain has `per_cell` samples, the last `official` of them for tests."""
    cells = domains * classes
    return Stock(
        labels=np.repeat(np.tile(np.arange(classes), domains), per_cell),
        domains=np.repeat(np.arange(domains), per_cell * classes),
        for_test=np.tile(np.arange(per_cell) >= per_cell - official, cells),
        classes=tuple("ab"[:classes]),
        domain_names=tuple("pqrs"[:domains]),
    )


def given(
    source: Stock, wanted: Wanted, partition: str = "domain", peers: int = 4
) -> list[Allotment]:
    return allot(
        source,
        wanted,
        peers=peers,
        partition=parse_partition(partition),
        min_samples=1,
        rng=np.random.default_rng(0),
    )


def mixes(source: Stock, allotments: list[Allotment]) -> set[tuple[tuple[int, ...], ...]]:
    return {
        tuple(
            tuple(np.bincount(source.labels[rows], minlength=2).tolist())
            for rows in (a.train, a.val, a.test)
        )
        for a in allotments
    }


@pytest.mark.parametrize("partition", ["domain", "iid"])
def test_each_peer_gets_what_was_asked_for_per_class(partition: str) -> None:
    source = stock(20, domains=2)  # 4 peers: 10 samples of each class for each
    assert mixes(source, given(source, Wanted(5, 2, 3), partition)) == {((5, 5), (2, 2), (3, 3))}


def test_without_a_number_training_gets_all_that_is_left() -> None:
    source = stock(20, domains=2)
    assert mixes(source, given(source, Wanted(None, 1, 2))) == {((7, 7), (1, 1), (2, 2))}


def test_what_is_held_out_shrinks_before_training_does() -> None:
    source = stock(20, domains=2)
    assert mixes(source, given(source, Wanted(None, 10, 30))) == {((5, 5), (1, 1), (4, 4))}
    assert mixes(source, given(source, Wanted(9, 10, 30))) == {((9, 9), (0, 0), (1, 1))}


def test_more_training_samples_than_there_are_are_refused_by_class_and_domain() -> None:
    with pytest.raises(DataError, match=r"class 'a' of domain p has 20 .* can be 10 at most"):
        given(stock(20, domains=2), Wanted(11))
    with pytest.raises(DataError, match="of all domains together has 40"):
        given(stock(20, domains=2), Wanted(11), "iid")


def test_official_test_samples_are_what_tests_use() -> None:
    source = stock(20, domains=1, official=8)  # 12 others
    allotments = given(source, Wanted(None, 2, 30), peers=2)
    assert mixes(source, allotments) == {((4, 4), (2, 2), (4, 4))}
    assert all(source.for_test[a.test].all() for a in allotments)


def test_with_uneven_classes_the_held_out_mix_is_that_of_training() -> None:
    source = stock(100, domains=1)
    for allotment in given(source, Wanted(None, 10, 10), "pathological:1", peers=2):
        counts = [
            np.bincount(source.labels[rows], minlength=2)
            for rows in (allotment.train, allotment.val, allotment.test)
        ]
        assert [sorted(c.tolist()) for c in counts] == [[0, 60], [0, 20], [0, 20]]


def test_with_uneven_sizes_all_peers_are_tested_on_as_many_samples() -> None:
    source = stock(100, domains=1)
    allotments = given(source, Wanted(None, 4, 8), "quantity:0.3", peers=4)
    assert [len(a.test) for a in allotments] == [16] * 4  # 8 of each class
    assert len({len(a.train) for a in allotments}) > 1


def test_fewer_peers_than_domains_leave_domains_out() -> None:
    source = stock(20, domains=4)
    allotments = given(source, Wanted(3, 1, 1), peers=2)
    assert [set(source.domains[a.train].tolist()) for a in allotments] == [{0}, {1}]

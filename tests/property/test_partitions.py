"""Whatever is dealt: no sample twice, the minimum kept, the same seed the same, always an end."""

import numpy as np
import numpy.typing as npt
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peer.data.allot import Stock, Wanted, allot
from peer.data.partition import Partition, apportion, deal, interleaved
from protocol.errors import DataError

Rows = npt.NDArray[np.int64]

partitions = st.one_of(
    st.sampled_from([Partition("domain"), Partition("iid")]),
    st.builds(
        Partition,
        st.sampled_from(["dirichlet", "quantity"]),
        st.sampled_from([1e-4, 1e-3, 0.05, 0.3, 1.0, 10.0, 1e6]),
    ),
    st.builds(Partition, st.just("pathological"), st.integers(1, 4)),
)
seeds = st.integers(0, 2**32)
steady = settings(deadline=None)  # a busy machine is no fault


@st.composite
def stocks(draw: st.DrawFn) -> Stock:
    """Up to 120 samples of up to 5 classes in up to 4 domains, some of them official tests."""
    num_samples = draw(st.integers(1, 120))
    num_domains = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(seeds))
    return Stock(
        labels=rng.integers(0, draw(st.integers(1, 5)), num_samples),
        domains=rng.integers(0, num_domains, num_samples),
        for_test=rng.random(num_samples) < draw(st.sampled_from([0.0, 0.3])),
        classes=("a", "b", "c", "d", "e"),
        domain_names=("p", "q", "r", "s")[:num_domains],
    )


def dealt(stock: Stock, seed: int, peers: int, partition: Partition, floor: int) -> list[Rows]:
    return deal(
        stock.labels,
        stock.domains,
        peers=peers,
        partition=partition,
        min_samples=floor,
        rng=np.random.default_rng(seed),
    )


@steady
@given(stocks(), seeds, st.integers(1, 12), partitions, st.integers(0, 12))
def test_a_deal_keeps_the_minimum_and_gives_no_sample_twice_or_is_refused(
    stock: Stock, seed: int, peers: int, partition: Partition, floor: int
) -> None:
    try:
        hands = dealt(stock, seed, peers, partition, floor)
    except DataError as refusal:
        assert "minimum" in str(refusal) or "need" in str(refusal)
        return
    together = np.concatenate(hands)
    assert len(hands) == peers
    assert min(len(hand) for hand in hands) >= floor
    assert len(np.unique(together)) == len(together)
    if partition.kind in {"iid", "dirichlet", "quantity"}:
        assert len(together) == len(stock.labels)
    for hand, again in zip(hands, dealt(stock, seed, peers, partition, floor), strict=True):
        assert hand.tobytes() == again.tobytes()


@steady
@given(stocks(), seeds, st.integers(1, 12), partitions)
def test_a_deal_is_refused_for_its_minimum_only_when_it_must_be(
    stock: Stock, seed: int, peers: int, partition: Partition
) -> None:
    assume(partition.kind in {"iid", "dirichlet", "quantity"})
    fair_share = len(stock.labels) // peers
    hands = dealt(stock, seed, peers, partition, fair_share)
    assert min(len(hand) for hand in hands) >= fair_share


@steady
@given(stocks(), seeds, st.integers(1, 12), st.integers(1, 4))
def test_nobody_holds_more_classes_than_the_pathological_k(
    stock: Stock, seed: int, peers: int, k: int
) -> None:
    assume(len(np.unique(stock.labels)) >= k)
    try:
        hands = dealt(stock, seed, peers, Partition("pathological", k), 1)
    except DataError:
        return
    assert all(len(np.unique(stock.labels[hand])) <= k for hand in hands)


@steady
@given(stocks(), seeds, st.integers(1, 12))
def test_peers_of_a_domain_get_it_whole_and_nothing_else(
    stock: Stock, seed: int, peers: int
) -> None:
    num_domains = int(stock.domains.max()) + 1
    for peer, hand in enumerate(dealt(stock, seed, peers, Partition("domain"), 0)):
        assert set(stock.domains[hand].tolist()) <= {peer % num_domains}


@steady
@given(
    stocks(),
    seeds,
    st.integers(1, 8),
    partitions,
    st.builds(Wanted, st.none() | st.integers(1, 5), st.integers(0, 4), st.integers(0, 4)),
)
def test_the_splits_of_all_peers_are_disjoint_and_official_tests_are_never_trained_on(
    stock: Stock, seed: int, peers: int, partition: Partition, wanted: Wanted
) -> None:
    try:
        given_out = allot(
            stock,
            wanted,
            peers=peers,
            partition=partition,
            min_samples=1,
            rng=np.random.default_rng(seed),
        )
    except DataError:
        return
    rows = np.concatenate([part for a in given_out for part in (a.train, a.val, a.test)])
    assert len(np.unique(rows)) == len(rows)
    for allotment in given_out:
        classes = set(stock.labels[allotment.train].tolist())
        assert not stock.for_test[allotment.train].any()
        assert not stock.for_test[allotment.val].any()
        if not partition.is_even:
            assert set(stock.labels[allotment.val].tolist()) <= classes
            assert set(stock.labels[allotment.test].tolist()) <= classes


@steady
@given(st.integers(0, 10_000), st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_a_share_out_adds_up_and_is_off_by_less_than_one(total: int, weights: list[float]) -> None:
    assume(sum(weights) > 1e-6)
    shares = apportion(total, weights)
    ideal = total * np.asarray(weights) / sum(weights)
    assert shares.sum() == total
    assert np.all(np.abs(shares - ideal) < 1 + 1e-6)
    assert all(share == 0 for share, weight in zip(shares, weights, strict=True) if weight == 0)


@steady
@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), seeds)
def test_every_run_of_an_interleaved_order_has_the_mix_of_the_whole(
    drawn: list[int], seed: int
) -> None:
    labels = np.array(drawn)
    order = interleaved(labels, np.zeros_like(labels), np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(labels)))
    for length in range(1, len(labels) + 1):
        seen = np.bincount(labels[order[:length]], minlength=4)
        expected = np.bincount(labels, minlength=4) * length / len(labels)
        assert np.abs(seen - expected).max() <= 2

"""From one stock of samples to each peer's train, validation and test rows.

First the stock is split by purpose, then training samples are dealt (partition.py), then what was
held out follows the mix of each peer's training hand. Peers that draw from one pool are a group:
the peers of one domain under `domain`, else all. Sizes that a person asks for are per class and
peer of the group, on average where the partition is uneven.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peer.data.card import SPLITS
from peer.data.layout import Rows
from peer.data.partition import Partition, deal, follow, interleaved
from protocol.errors import DataError

__all__ = ["Allotment", "Stock", "Wanted", "allot"]


@dataclass(frozen=True, slots=True, eq=False)
class Stock:
    """All samples that there are, without their images; N of them."""

    labels: Rows  # (N,)
    domains: Rows  # (N,), numbers of `domain_names`
    for_test: npt.NDArray[np.bool_]  # (N,), the official test samples: never trained on
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Samples per class and peer."""

    train: int | None = None  # None is all that is left
    val: int = 10
    test: int = 30


@dataclass(frozen=True, slots=True, eq=False)
class Allotment:
    """Sorted rows of the stock; no row is in two splits or with two peers."""

    train: Rows
    val: Rows
    test: Rows


def allot(
    stock: Stock,
    wanted: Wanted,
    *,
    peers: int,
    partition: Partition,
    min_samples: int,
    rng: np.random.Generator,
) -> list[Allotment]:
    """Give each peer its samples.

    Raises:
        DataError: a class cannot give `wanted.train` to each peer, or a peer would have fewer than
            `min_samples` training samples.
    """
    num_groups = len(stock.domain_names) if partition.kind == "domain" else 1
    groups = stock.domains if num_groups > 1 else np.zeros_like(stock.domains)
    members = [range(group, peers, num_groups) for group in range(min(num_groups, peers))]
    pools = _pools(stock, wanted, groups, [len(peers_of) for peers_of in members], rng)
    train = pools["train"]
    dealt = deal(
        stock.labels[train],
        stock.domains[train],
        peers=peers,
        partition=partition,
        min_samples=min_samples,
        rng=rng,
    )
    hands = [train[hand] for hand in dealt]
    held: dict[str, list[Rows]] = {"val": [train[:0]] * peers, "test": [train[:0]] * peers}
    for split, given in held.items():
        for group, peers_of in enumerate(members):
            rows = pools[split][groups[pools[split]] == group]
            mixes = [stock.labels[hands[peer]] for peer in peers_of]
            if partition.is_even:  # also where a small training hand misses a class by its size
                mixes = [stock.labels[rows]] * len(peers_of)
            for peer, hand in zip(peers_of, follow(stock.labels[rows], mixes, rng), strict=True):
                given[peer] = rows[hand]
    return [Allotment(*rows) for rows in zip(hands, held["val"], held["test"], strict=True)]


def _pools(
    stock: Stock, wanted: Wanted, groups: Rows, heads: list[int], rng: np.random.Generator
) -> dict[str, Rows]:
    """Split the stock by purpose; `heads[g]` is the number of peers in group g."""
    order = interleaved(stock.labels, stock.domains, rng)
    pools: dict[str, list[Rows]] = {split: [order[:0]] for split in SPLITS}
    for group, num_peers in enumerate(heads):
        in_group = order[groups[order] == group]
        for label in np.unique(stock.labels[in_group]):
            rows = in_group[stock.labels[in_group] == label]
            for split, taken in _by_purpose(stock, rows, wanted, num_peers).items():
                pools[split].append(taken)
    return {split: np.concatenate(taken) for split, taken in pools.items()}


def _by_purpose(stock: Stock, rows: Rows, wanted: Wanted, num_peers: int) -> dict[str, Rows]:
    """Split one class of one group; tests use official test samples where there are any.

    Val and test shrink together when training would get less than `wanted.train`, or less than
    half where all that is left is wanted.
    """
    official, usual = rows[stock.for_test[rows]], rows[~stock.for_test[rows]]
    each = len(usual) // num_peers
    room = each // 2 if wanted.train is None else each - wanted.train
    if room < 0:
        raise _scarce(stock, rows, len(usual), each, num_peers)
    val, test = wanted.val, 0 if len(official) else wanted.test
    if val + test > room:
        test = -(-room * test // (val + test))
        val = room - test
    test_rows, val_rows, rest = np.split(usual, np.cumsum([test * num_peers, val * num_peers]))
    official_test = min(wanted.test, len(official) // num_peers)
    return {
        "train": rest if wanted.train is None else rest[: wanted.train * num_peers],
        "val": val_rows,
        "test": np.concatenate([test_rows, official[: official_test * num_peers]]),
    }


def _scarce(stock: Stock, rows: Rows, found: int, each: int, num_peers: int) -> DataError:
    label, domain = stock.labels[rows[0]], stock.domains[rows[0]]
    several = len(np.unique(stock.domains[rows])) > 1
    where = "all domains together" if several else f"domain {stock.domain_names[domain]}"
    return DataError(
        f"class {stock.classes[label]!r} of {where} has {found} training samples for {num_peers} "
        f"peers, {each} each",
        hint=f"--samples-per-class can be {each} at most, less what val and test should have"
        if each
        else "give fewer peers",
    )

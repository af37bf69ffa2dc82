"""Who gets which sample: pure functions of (labels, domains, peers, generator).

domain           peer p takes domain p mod D; a domain's peers share it evenly, class by class
iid              everybody gets the same mix
dirichlet:ALPHA  each class is dealt by shares from Dirichlet(ALPHA) (Hsu et al. 2019)
pathological:K   each peer holds K classes (McMahan et al. 2017, section 3)
quantity:ALPHA   the same mix, sizes from Dirichlet(ALPHA)

None of them resamples until it fits: a peer that falls short of the minimum is filled up from the
largest ones, sample by sample, or the deal is refused.

Letters of shapes: P peers, C classes, N samples.
"""

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
import numpy.typing as npt

from peer.data.layout import Rows
from protocol.errors import ConfigError, DataError

__all__ = ["FORMS", "Partition", "apportion", "deal", "follow", "interleaved", "parse_partition"]

Kind = Literal["domain", "iid", "dirichlet", "pathological", "quantity"]
Counts = npt.NDArray[np.int64]

FORMS = "domain, iid, dirichlet:ALPHA, pathological:K, quantity:ALPHA"
MAX_ALPHA = 1e6  # beyond, shares are even to within a sample
MIN_ALPHA = 1e-4  # below, one peer takes all


@dataclass(frozen=True, slots=True)
class Partition:
    """How samples are dealt: a kind, with ALPHA or K where it needs one."""

    kind: Kind
    value: float = 0.0

    @property
    def is_even(self) -> bool:
        """Whether all peers that share a pool have its mix of classes."""
        return self.kind in {"domain", "iid", "quantity"}

    def __str__(self) -> str:
        return f"{self.kind}:{self.value:g}" if self.value else self.kind


def parse_partition(text: str) -> Partition:
    """Read what a person typed.

    Raises:
        ConfigError: unknown, or its number is missing, superfluous or out of bounds.
    """
    kind, _, number = text.partition(":")
    match kind:
        case "domain" | "iid":
            if not number:
                return Partition(kind)
        case "dirichlet" | "quantity":
            if (alpha := _number(number)) is not None and MIN_ALPHA <= alpha <= MAX_ALPHA:
                return Partition(kind, alpha)
            raise ConfigError(
                f"partition {text!r}: ALPHA must be in [{MIN_ALPHA:g}, {MAX_ALPHA:g}]",
                hint=f"for example {kind}:0.3",
            )
        case "pathological":
            if number.isascii() and number.isdigit() and 1 <= int(number) <= 10_000:
                return Partition(kind, int(number))
            raise ConfigError(
                f"partition {text!r}: K must be a whole number of classes, at least 1",
                hint="for example pathological:2",
            )
        case _:
            pass
    raise ConfigError(f"partition {text!r} is unknown; allowed are {FORMS}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def deal(
    labels: Rows,
    domains: Rows,
    *,
    peers: int,
    partition: Partition,
    min_samples: int,
    rng: np.random.Generator,
) -> list[Rows]:
    """Deal samples to peers, no sample twice.

    All are dealt, but for those of domains without a peer (`domain`, P < D) and of classes that
    nobody holds (`pathological`, P * K < C).

    Returns:
        For each peer, the sorted rows that it gets, at least `min_samples` of them.

    Raises:
        DataError: the minimum cannot be kept, and why.
    """
    if (fewest := peers * min_samples) > len(labels):
        raise DataError(
            f"{peers} peers with at least {min_samples} training samples each need {fewest}, "
            f"there are {len(labels)}",
            hint="lower --min-samples or --peers, or raise --samples-per-class",
        )
    match partition.kind:
        case "domain":
            hands = _by_domain(labels, domains, peers, rng)
        case "iid":
            hands = _evenly(labels, domains, peers, rng)
        case "dirichlet":
            counts = _class_counts(labels)
            shares = rng.dirichlet([partition.value] * peers, size=len(counts))
            dealt = np.stack([apportion(n, s) for n, s in zip(counts, shares, strict=True)], axis=1)
            hands = _cut(labels, _filled(dealt, min_samples), rng)
        case "pathological":
            dealt = _few_classes(_class_counts(labels), peers, int(partition.value), rng)
            hands = _cut(labels, _filled(dealt, min_samples, among=dealt > 0), rng)
        case "quantity":
            sizes = apportion(len(labels), rng.dirichlet([partition.value] * peers))
            sizes = _filled(sizes[:, None], min_samples)[:, 0]
            hands = np.split(interleaved(labels, domains, rng), np.cumsum(sizes)[:-1])
        case _:
            assert_never(partition.kind)
    for peer, hand in enumerate(hands):
        if len(hand) < min_samples:
            raise DataError(
                f"peer {peer} would get {len(hand)} training samples under {partition}, the "
                f"minimum is {min_samples}",
                hint="lower --min-samples, or give fewer peers",
            )
    return [np.sort(hand) for hand in hands]


def follow(labels: Rows, hands: list[Rows], rng: np.random.Generator) -> list[Rows]:
    """Deal held-out samples as training samples were dealt.

    Of a class, each peer gets the share that it has of the class's training samples, so its mix of
    classes stays its own.

    Args:
        labels: of the held-out samples.
        hands: for each peer, the labels of the training samples that it got.
        rng: shuffles samples of a class.
    """
    num_classes = 1 + max((int(y.max()) for y in (labels, *hands) if len(y)), default=0)
    held = np.bincount(labels, minlength=num_classes)
    shares = np.stack([np.bincount(y, minlength=num_classes) for y in hands])  # (P, C)
    held[shares.sum(axis=0) == 0] = 0  # nobody trains on it
    dealt = [
        apportion(n, s) if n else np.zeros_like(s) for n, s in zip(held, shares.T, strict=True)
    ]
    return [np.sort(hand) for hand in _cut(labels, np.stack(dealt, axis=1), rng)]


def apportion(total: int, weights: npt.ArrayLike) -> Counts:
    """Share out `total` by weight in whole numbers, largest remainders first, ties to the first.

    A weight of 0 gets nothing. The weights are >= 0 and not all 0.
    """
    share = np.asarray(weights, np.float64)
    ideal = total * (share / share.sum())
    whole: Counts = np.floor(ideal).astype(np.int64)
    order = np.argsort(np.where(share > 0, whole - ideal, np.inf), kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def interleaved(labels: Rows, domains: Rows, rng: np.random.Generator) -> Rows:
    """Order samples so that every run of them has the mix of the whole, to within rounding.

    Each sample of a (class, domain) of n lies at its rank's fraction of the whole: (i + 1/2) / n.
    """
    order = rng.permutation(len(labels))
    cells = np.stack([labels[order], domains[order]])
    _, cell, sizes = np.unique(cells, axis=1, return_inverse=True, return_counts=True)
    by_cell = np.argsort(cell, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.empty(len(order), np.int64)
    rank[by_cell] = np.arange(len(order)) - np.repeat(starts, sizes)
    return order[np.argsort((rank + 0.5) / sizes[cell], kind="stable")]


def _class_counts(labels: Rows) -> Counts:
    return np.bincount(labels)


def _evenly(labels: Rows, domains: Rows, peers: int, rng: np.random.Generator) -> list[Rows]:
    """Deal like cards, class after class: sizes, classes and cells differ by one at most."""
    order = rng.permutation(len(labels))
    order = order[np.lexsort((domains[order], labels[order]))]
    return [order[peer::peers] for peer in range(peers)]


def _by_domain(labels: Rows, domains: Rows, peers: int, rng: np.random.Generator) -> list[Rows]:
    num_domains = int(domains.max()) + 1
    hands: list[Rows] = [np.zeros(0, np.int64)] * peers
    for domain in range(min(num_domains, peers)):
        rows = np.flatnonzero(domains == domain)
        homes = range(domain, peers, num_domains)
        dealt = _evenly(labels[rows], domains[rows], len(homes), rng)
        for peer, hand in zip(homes, dealt, strict=True):
            hands[peer] = rows[hand]
    return hands


def _few_classes(counts: Counts, peers: int, k: int, rng: np.random.Generator) -> Counts:
    """Give each peer the k classes that the fewest hold so far, ties by lot; (P, C) counts."""
    present = np.flatnonzero(counts)
    if k > len(present):
        raise DataError(
            f"pathological:{k} needs {k} classes with training samples, there are {len(present)}"
        )
    holds = np.zeros((peers, len(counts)), np.int64)
    for peer in range(peers):
        lots = rng.permutation(present)
        least = lots[np.argsort(holds[:, lots].sum(axis=0), kind="stable")]
        holds[peer, least[:k]] = 1
    dealt = np.zeros_like(holds)
    for label in np.flatnonzero(holds.any(axis=0)):
        dealt[:, label] = apportion(counts[label], holds[:, label])
    return dealt


def _filled(counts: Counts, floor: int, among: npt.NDArray[np.bool_] | None = None) -> Counts:
    """Move samples from the largest peers to those below `floor`, one at a time.

    A sample is taken from the largest peer that can spare one of a class that the poor peer may
    hold, of the class that it has most of. Ends after as many moves as samples were missing, or
    when nobody can spare one.

    Args:
        counts: (P, C), samples of each peer and class.
        floor: samples that each peer should have.
        among: (P, C), the classes that each peer may be given; None is all.
    """
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    for poor in np.flatnonzero(sizes < floor):
        classes = np.arange(counts.shape[1]) if among is None else np.flatnonzero(among[poor])
        while sizes[poor] < floor:
            can_spare = sizes > floor
            if among is not None:
                can_spare &= counts[:, classes].any(axis=1)
            if not can_spare.any():
                break
            rich = int(np.argmax(np.where(can_spare, sizes, -1)))
            label = classes[np.argmax(counts[rich, classes])]
            counts[rich, label] -= 1
            counts[poor, label] += 1
            sizes[rich] -= 1
            sizes[poor] += 1
    return counts


def _cut(labels: Rows, counts: Counts, rng: np.random.Generator) -> list[Rows]:
    """Take, of each class, as many shuffled samples for each peer as `counts` (P, C) says."""
    hands: list[list[Rows]] = [[] for _ in range(len(counts))]
    for label in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for hand, piece in zip(hands, np.split(rows, np.cumsum(counts[:, label])), strict=False):
            hand.append(piece)
    return [np.concatenate(hand) for hand in hands]

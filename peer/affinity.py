"""Who was helped by whom in a run, as a square matrix; and whether camps or domains show in it.

Pure numpy. Must not know files.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

__all__ = ["Affinity", "Contrast", "affinity", "camp_contrast", "domain_contrast"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Labels = tuple[int, ...]

MAX_LABELLINGS = 10_000  # up to here all are enumerated, beyond as many less one are drawn
TOLERANCE = 1e-9  # sums that differ by less are ties: their terms were added in another order


@dataclass(frozen=True, slots=True, eq=False)
class Affinity:
    """`cells[i, j]` is M x lambda: what peer j weighed in peer i's mixes, 1 being an equal share.

    NaN where j was never in a mix of i. The diagonal holds the own weights; no contrast reads it.
    """

    peers: tuple[str, ...]  # M, grouped by camp, then domain
    camps: tuple[int, ...]
    domains: tuple[str, ...]
    cells: Floats  # (M, M)


@dataclass(frozen=True, slots=True)
class Contrast:
    """Mean influence between peers that are alike against that between those that are not."""

    same: float
    other: float
    p_value: float
    num_labellings: int  # that the p-value compares with, the true one among them
    enumerated: bool  # all that there are, against a random draw

    @property
    def ratio(self) -> float:
        if self.other == 0.0:
            return math.inf if self.same > 0.0 else math.nan
        return self.same / self.other


def affinity(
    relative: Mapping[str, Mapping[str, float]],
    camps: Mapping[str, int],
    domains: Mapping[str, str],
) -> Affinity:
    """Put the peers' relative weights together.

    Args:
        relative: of each asker, M x lambda by neighbour (`Influence.relative`).
        camps: of each asker.
        domains: of each asker.
    """
    peers = tuple(sorted(relative, key=lambda peer: (camps[peer], domains[peer], peer)))
    cells = np.array(
        [[relative[asker].get(other, math.nan) for other in peers] for asker in peers],
        dtype=np.float64,
    ).reshape(len(peers), len(peers))
    return Affinity(
        peers,
        tuple(camps[peer] for peer in peers),
        tuple(domains[peer] for peer in peers),
        cells,
    )


def camp_contrast(whole: Affinity, *, seed: int = 0) -> Contrast | None:
    """Compare same-camp with other-camp neighbours; None where there are not both kinds.

    The cells are averages over rounds, because the rounds of one run depend on each other and would
    count one finding many times. What is permuted is which peer is of which camp, over all
    peers; the matrix stays. The p-value is the share of labellings, the true one among them, under
    which same-camp influence stands out at least as much: exact where "camps do not matter" makes
    all labellings equally likely. With 8 peers in two camps of 4 there are 70, and as both names of
    the camps give one value, p is at least 2/70. Where camps and domains coincide the test
    cannot tell one from the other.
    """
    return _contrast(whole.cells, whole.camps, [0] * len(whole.peers), seed)


def domain_contrast(whole: Affinity, *, seed: int = 0) -> Contrast | None:
    """Compare same-domain with other-domain neighbours of the own camp; None without both kinds.

    As `camp_contrast`, but only pairs within a camp count, and the domains are permuted among the
    peers of each camp.
    """
    return _contrast(whole.cells, _numbered(whole.domains), whole.camps, seed)


def _numbered(names: Sequence[str]) -> Labels:
    order = {name: number for number, name in enumerate(sorted(set(names)))}
    return tuple(order[name] for name in names)


def _contrast(cells: Floats, labels: Labels, strata: Sequence[int], seed: int) -> Contrast | None:
    """Contrast pairs of equal and of unequal label, among pairs of one stratum."""
    stratum = np.asarray(strata)
    among = (stratum[:, None] == stratum) & ~np.eye(len(labels), dtype=bool) & np.isfinite(cells)
    means = _means(cells, among, np.asarray(labels))
    if means is None:
        return None
    labellings, enumerated = _labellings(labels, strata, seed)
    shares = [_share(_means(cells, among, np.asarray(other))) for other in labellings]
    reached = sum(share >= _share(means) - TOLERANCE for share in shares)
    return Contrast(*means, reached / len(shares), len(shares), enumerated)


def _means(cells: Floats, among: Mask, labels: npt.NDArray[np.int64]) -> tuple[float, float] | None:
    alike = labels[:, None] == labels
    same, other = cells[among & alike], cells[among & ~alike]
    return (float(same.mean()), float(other.mean())) if len(same) and len(other) else None


def _share(means: tuple[float, float] | None) -> float:
    """Grow with the ratio same / other, but finite; a labelling without both kinds counts as 1."""
    if means is None or sum(means) == 0.0:
        return 0.5
    return means[0] / (means[0] + means[1])


def _labellings(labels: Labels, strata: Sequence[int], seed: int) -> tuple[list[Labels], bool]:
    """All ways to deal each stratum's labels to its peers, or a draw with the true one in front."""
    members = [
        [peer for peer, of in enumerate(strata) if of == stratum] for stratum in sorted(set(strata))
    ]
    hands = [tuple(labels[peer] for peer in peers) for peers in members]
    if math.prod(_num_orders(hand) for hand in hands) <= MAX_LABELLINGS:
        dealt = product(*(list(_orders(hand)) for hand in hands))
        return [_placed(members, each) for each in dealt], True
    rng = np.random.default_rng(seed)
    drawn = [
        _placed(members, [tuple(rng.permutation(hand).tolist()) for hand in hands])
        for _ in range(MAX_LABELLINGS - 1)
    ]
    return [labels, *drawn], False


def _placed(members: Sequence[Sequence[int]], hands: Sequence[Labels]) -> Labels:
    where = {
        peer: label
        for peers, hand in zip(members, hands, strict=True)
        for peer, label in zip(peers, hand, strict=True)
    }
    return tuple(where[peer] for peer in sorted(where))


def _num_orders(hand: Labels) -> int:
    return math.factorial(len(hand)) // math.prod(
        math.factorial(count) for count in Counter(hand).values()
    )


def _orders(hand: Labels) -> Iterator[Labels]:
    """Every order of a multiset once."""
    if not hand:
        yield ()
    for first in sorted(set(hand)):
        at = hand.index(first)
        for rest in _orders(hand[:at] + hand[at + 1 :]):
            yield (first, *rest)

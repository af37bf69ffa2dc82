"""Shapes of a topology: a roster in order of name goes in, links come out.

Whatever the number of peers, each shape links them into one piece as well as that number allows;
its `misfit` says where that falls short of the letter. All chance is BLAKE2b of the seed and the
names, so that neither the version of Python nor the machine has a say, and a peer that comes or
goes moves few links of the others.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, pairwise
from math import isqrt
from typing import Protocol, TypeAlias

from protocol.ids import PeerId

__all__ = [
    "Full",
    "Link",
    "Listed",
    "Regular",
    "Ring",
    "Shape",
    "SmallWorld",
    "Star",
    "Torus",
    "joined",
    "pieces",
    "shuffled",
]

Link: TypeAlias = tuple[PeerId, PeerId]
Order: TypeAlias = tuple[PeerId, ...]  # of name
Adjacent: TypeAlias = dict[PeerId, set[PeerId]]

TRIES = 10  # random graphs that may come out in pieces before the constructed one is taken


class Shape(Hashable, Protocol):
    """How a topology links a roster."""

    def misfit(self, num_peers: int) -> str:
        """Tell why so many peers cannot be linked to the letter; empty when they can."""

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        """Link the peers. A doubled link counts once, a link to oneself not at all."""


def shuffled(peers: Iterable[PeerId], seed: int, *purpose: object) -> list[PeerId]:
    """A random order in which a peer that comes or goes does not move the others."""
    drawn = blake2b("/".join(map(str, (seed, *purpose, ""))).encode(), digest_size=8)

    def rank(peer: PeerId) -> tuple[bytes, PeerId]:
        hashed = drawn.copy()
        hashed.update(peer.encode())
        return hashed.digest(), peer

    return sorted(peers, key=rank)


def joined(peers: Iterable[PeerId], links: Iterable[Link]) -> Adjacent:
    """Who is linked with whom. All ends of the links must be among the peers."""
    adjacent: Adjacent = {peer: set() for peer in peers}
    for one, other in links:
        if one != other:
            _link(adjacent, one, other)
    return adjacent


def pieces(adjacent: Mapping[PeerId, Iterable[PeerId]]) -> list[list[PeerId]]:
    """The connected pieces, by their first peers, which stand first in each."""
    found: list[list[PeerId]] = []
    seen: set[PeerId] = set()
    for first in adjacent:
        if first in seen:
            continue
        seen.add(first)
        piece = [first]
        for peer in piece:  # grows as it is walked
            fresh = [other for other in adjacent[peer] if other not in seen]
            seen.update(fresh)
            piece += fresh
        found.append(piece)
    return found


def _hash(seed: int, *words: object) -> int:
    """64 bits that depend on nothing but the arguments."""
    text = "/".join(map(str, (seed, *words)))  # no name has a slash
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _link(adjacent: Adjacent, one: PeerId, other: PeerId) -> None:
    adjacent[one].add(other)
    adjacent[other].add(one)


def _unlink(adjacent: Adjacent, one: PeerId, other: PeerId) -> None:
    adjacent[one].remove(other)
    adjacent[other].remove(one)


def _all_links(adjacent: Adjacent) -> Iterator[Link]:
    return ((one, other) for one, others in adjacent.items() for other in others)


def _circulant(order: Sequence[PeerId], steps: Iterable[int]) -> Iterator[Link]:
    """Link each peer with those that follow it at each of the steps, round the ring."""
    return (
        (peer, order[(place + step) % len(order)])
        for step in steps
        for place, peer in enumerate(order)
    )


# -- without chance -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Full:
    """Everybody with everybody."""

    def misfit(self, num_peers: int) -> str:
        return ""

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        return combinations(order, 2)


@dataclass(frozen=True, slots=True)
class Ring:
    """In the order of the names; two peers are one link."""

    def misfit(self, num_peers: int) -> str:
        return ""

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        return _circulant(order, [1])


@dataclass(frozen=True, slots=True)
class Star:
    """Everybody with the first name."""

    def misfit(self, num_peers: int) -> str:
        return "" if num_peers > 1 else "a star needs a centre and one more peer"

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        return ((order[0], other) for other in order[1:])


@dataclass(frozen=True, slots=True)
class Torus:
    """The grid nearest to a square, closed both ways: four links each. Below 5 peers a ring.

    A number without a divisor from 3 up to its root (a prime, 8, 10, 14 ...) has no such grid. It
    is wound as a helix: the end of a row is followed by the start of the next one, which makes it
    the circulant graph of the steps 1 and isqrt(n).
    """

    def misfit(self, num_peers: int) -> str:
        return ""

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        root = isqrt(len(order))
        rows = next(rows for rows in range(root, 0, -1) if len(order) % rows == 0)
        if rows < 3:
            return _circulant(order, [1, root] if len(order) >= 5 else [1])
        columns = len(order) // rows
        grid = [order[start : start + columns] for start in range(0, len(order), columns)]
        return [
            link for line in (*grid, *zip(*grid, strict=True)) for link in _circulant(line, [1])
        ]


@dataclass(frozen=True, slots=True)
class Listed:
    """The links that somebody wrote down."""

    listed: tuple[Link, ...]

    @property
    def names(self) -> frozenset[PeerId]:
        return frozenset(name for link in self.listed for name in link)

    def misfit(self, num_peers: int) -> str:
        if len(self.names) < num_peers:
            return f"its links name {len(self.names)} only"
        return ""

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        """Where peers are absent, the pieces that are left are chained by their first peers."""
        present = frozenset(order)
        kept = [link for link in self.listed if present.issuperset(link)]
        firsts = [piece[0] for piece in pieces(joined(order, kept))]
        return [*kept, *pairwise(firsts)]


# -- by chance ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Regular:
    """Random rings laid over each other, and one random pairing for an odd degree.

    Rings after Law and Siu, "Distributed construction of random expander networks", INFOCOM 2003.
    A link that two of them share is mended by exchanging ends with another link. A degree above
    half of the peers is made by the links that are absent.
    """

    degree: int  # >= 2

    def misfit(self, num_peers: int) -> str:
        if self.degree >= num_peers:
            return f"k must be below {num_peers}"
        if self.degree * num_peers % 2:
            return f"an odd number of peers needs an even k, for example {self.degree - 1}"
        return ""

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        """The degree is cut to all others, and is one fewer where the number of ends is odd."""
        degree = min(self.degree, len(order) - 1)
        degree -= degree * len(order) % 2
        if 2 * degree <= len(order):
            return _random_regular(order, degree, seed)
        absent = joined(order, _random_regular(order, len(order) - 1 - degree, seed))
        return (link for link in combinations(order, 2) if link[1] not in absent[link[0]])


def _random_regular(order: Order, degree: int, seed: int) -> Iterable[Link]:
    """`degree` links each, in one piece from degree 2 up; half of the peers at most."""
    for attempt in range(TRIES):
        adjacent = _laid_over(order, degree, seed, attempt)
        if adjacent is not None and (degree < 2 or len(pieces(adjacent)) == 1):
            return _all_links(adjacent)
    return _regular_by_steps(order, degree, seed)


def _regular_by_steps(order: Order, degree: int, seed: int) -> Iterable[Link]:
    """The constructed way out: each with the nearest on a random ring, and across it when odd."""
    across = [len(order) // 2] if degree % 2 else []
    ring = shuffled(order, seed, "ring", 0, 0)
    return _circulant(ring, [*range(1, degree // 2 + 1), *across])


def _laid_over(order: Order, degree: int, seed: int, attempt: int) -> Adjacent | None:
    """One try, perhaps in pieces; None when a link drawn twice could not be mended."""
    drawn: list[Link] = []
    for layer in range(degree // 2):
        drawn += _circulant(shuffled(order, seed, "ring", attempt, layer), [1])
    if degree % 2:
        pairs = shuffled(order, seed, "pairs", attempt)
        drawn += zip(pairs[::2], pairs[1::2], strict=True)
    adjacent = joined(order, ())
    twice: list[Link] = []
    for one, other in drawn:
        if other in adjacent[one]:
            twice.append((one, other))
        _link(adjacent, one, other)
    for one, other in twice:
        start = _hash(seed, "mend", attempt, one, other) % len(order)
        if not _mend(adjacent, one, other, (*order[start:], *order[:start])):
            return None
    return adjacent


def _mend(adjacent: Adjacent, one: PeerId, other: PeerId, thirds: Iterable[PeerId]) -> bool:
    """Give both ends one more link: third - fourth becomes one - third and other - fourth."""
    for third in thirds:
        if third in {one, other} or third in adjacent[one]:
            continue
        free = adjacent[third] - adjacent[other] - {other}
        if free:
            fourth = min(free)
            _unlink(adjacent, third, fourth)
            _link(adjacent, one, third)
            _link(adjacent, other, fourth)
            return True
    return False


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """A random ring of `degree` each, whose links are moved to anybody with probability `moved`.

    Watts and Strogatz, "Collective dynamics of small-world networks", Nature 393 (1998). The number
    of links is that of the ring, at least degree / 2 each. When it comes out in pieces it is drawn
    again, at last without moving the links to the next on the ring.
    """

    degree: int  # even, >= 2
    moved: float  # in [0, 1]

    def misfit(self, num_peers: int) -> str:
        return "" if self.degree < num_peers else f"k must be below {num_peers}"

    def links(self, order: Order, seed: int) -> Iterable[Link]:
        """From degree n - 1 up everybody is linked with everybody."""
        if self.degree >= len(order) - 1:
            return combinations(order, 2)
        for attempt in range(TRIES):
            adjacent = self._drawn(order, (seed, attempt), first_step=1)
            if len(pieces(adjacent)) == 1:
                return _all_links(adjacent)
        return _all_links(self._drawn(order, (seed, TRIES), first_step=2))

    def _drawn(self, order: Order, chance: tuple[int, int], *, first_step: int) -> Adjacent:
        ring = shuffled(order, chance[0], "ring")
        last_step = self.degree // 2
        adjacent = joined(ring, _circulant(ring, range(1, last_step + 1)))
        for one, other in _circulant(ring, range(first_step, last_step + 1)):
            if _hash(*chance, "move", one, other) >= self.moved * 2**64:
                continue
            strangers = [peer for peer in ring if peer != one and peer not in adjacent[one]]
            if strangers:
                _unlink(adjacent, one, other)
                _link(adjacent, one, shuffled(strangers, *chance, one, other)[0])
        return adjacent

"""How long a round waits, and what a late contribution is worth. Numbers and formulas only."""

from dataclasses import dataclass

from peer.options.fields import LONGEST_S, Only, check, choice, number, whole

__all__ = ["Arrivals", "Pace", "freshness", "longest"]

ADAPTIVE_BOUND_S = 60.0  # shortest hard bound of a round when none is set
ADAPTIVE_BOUND_ROUNDS = 5.0  # ... or this many times the longest round seen or told of
TOLD_S = 3600.0  # a neighbour's word of how long it needs counts for at most so much
TOLD_ROUNDS = 20.0  # ... or for this many times the longest round that was seen
_GAIN_MEAN, _GAIN_DEVIATION = 0.125, 0.25  # as in RFC 6298: smooth enough, quick enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    mode: str = choice(
        "sync",
        "sync | async",
        "async waits for nobody: each round takes the newest that has come by then",
    )
    quorum: float = number(
        0.5, "(0, 1]", "share of the neighbours that must be in; 1 gives nobody up before the bound"
    )
    grace_s: float = number(
        1.0, f"[0, {LONGEST_S}]", "seconds on top of each deadline", only=Only("quorum", "(0, 1)")
    )
    silence_s: float = number(
        10.0,
        f"[4, {LONGEST_S}]",  # two signs of life; with less, a late one would look like a loss
        "seconds without a sign of life, which comes every 2 s, until one is given up",
    )
    bound_s: float = number(
        0.0, f"[0, {LONGEST_S}]", "hard bound of a round's wait in seconds; 0 adapts"
    )
    max_staleness: int = whole(3, "[0, 1000000]", "rounds that a substitute may be old")
    half_life: float = number(
        1.0,
        "(0, inf)",
        "rounds after which a substitute weighs half",
        only=Only("max_staleness", "[1, inf)"),
    )
    drain_s: float = number(
        60.0, f"[0, {LONGEST_S}]", "longest wait for the others at the end, in seconds"
    )

    def __post_init__(self) -> None:
        check(self)

    def bound(self, longest_s: float) -> float:
        """Hard bound of a COLLECT in seconds.

        Args:
            longest_s: longest round that this peer has seen or been told of, in seconds.
        """
        if self.bound_s:
            return self.bound_s
        return max(ADAPTIVE_BOUND_S, ADAPTIVE_BOUND_ROUNDS * longest_s)

    def is_stretched_by(self, told_s: float, seen_s: float) -> bool:
        """Does a neighbour's word make the bound longer than what was seen does?"""
        return self.bound(longest(seen_s, told_s)) > self.bound(seen_s)


def longest(seen_s: float, told_s: float) -> float:
    """Longest round to reckon with, in seconds: a word is believed within bounds.

    Args:
        seen_s: longest that this peer has seen itself.
        told_s: longest that a neighbour says it needs.
    """
    return max(seen_s, min(told_s, max(TOLD_S, TOLD_ROUNDS * seen_s)))


def freshness(age: int, half_life: float) -> float:
    """Weigh a late contribution: 1 when fresh, 1/2 after `half_life`.

    Args:
        age: in rounds; 0 and less is fresh.
        half_life: in rounds, > 0.
    """
    return float(0.5 ** (max(age, 0) / half_life))


class Arrivals:
    """How long after the start of a round one neighbour's results tend to arrive."""

    def __init__(self) -> None:
        self._mean_s: float | None = None
        self._deviation_s = 0.0

    def add(self, waited_s: float) -> None:
        if self._mean_s is None:
            self._mean_s, self._deviation_s = waited_s, waited_s / 2
            return
        error_s = waited_s - self._mean_s
        self._deviation_s += _GAIN_DEVIATION * (abs(error_s) - self._deviation_s)
        self._mean_s += _GAIN_MEAN * error_s

    @property
    def mean_s(self) -> float:
        """0 before the first arrival."""
        return self._mean_s or 0.0

    def expected_within_s(self) -> float | None:
        """Mean plus four deviations; None before the first arrival."""
        return None if self._mean_s is None else self._mean_s + 4.0 * self._deviation_s

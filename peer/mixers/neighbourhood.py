"""A peer's closed neighbourhood: itself and what arrived, in the order in which sums are taken."""

from collections.abc import Callable, Sequence

from protocol.ids import PeerId
from protocol.round import Contribution

__all__ = ["closed", "shares"]


def closed(own: Contribution, others: Sequence[Contribution]) -> list[Contribution]:
    """Everyone, sorted by sender."""
    return sorted([own, *others], key=lambda contribution: contribution.sender)


def shares(
    everyone: Sequence[Contribution], raw: Callable[[Contribution], float]
) -> dict[PeerId, float]:
    """Weights proportional to `raw` and to freshness, in the order given; they sum to 1.

    Args:
        everyone: at least one.
        raw: > 0.
    """
    weights = {c.sender: raw(c) * c.freshness for c in everyone}
    whole = sum(weights.values())
    return {sender: weight / whole for sender, weight in weights.items()}

"""The aggregator slot: from one round's contributions to the relay's next start point."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from protocol.ids import PeerId
from protocol.params import State
from protocol.round import Aggregated, Contribution, Start

__all__ = ["Aggregator", "Fitting"]


class Aggregator(Protocol):
    """Combines what several peers trained from one common start point.

    What it is given has passed admission and `peer.aggregators.evidence.lacks`: the layout of the
    start, and the evidence that the method's `needs` name. Its notes hold what
    `peer.aggregators.conflict.conflicts` measures, at least.
    """

    def init(self, start: Start) -> State:
        """State before the first round."""

    def aggregate(
        self,
        state: State,
        start: Start,
        contributions: Sequence[Contribution],
        roster: Sequence[PeerId],
    ) -> tuple[Aggregated, State]:
        """Next start point with its evidence, and next state.

        `contributions` is sorted by sender and never empty; `roster` holds all peers, present or
        not. Sections of the state that would be empty may be missing.
        """


@runtime_checkable
class Fitting(Aggregator, Protocol):
    """An aggregator that has to know more of the model than names and shapes."""

    def fitted(self, rows: Mapping[str, int]) -> Aggregator:
        """The same for one model; `rows`: its weights with rows, and the axis of these."""

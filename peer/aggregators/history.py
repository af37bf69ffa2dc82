"""What peers sent when they were last heard of, for methods that remember it.

State holds one direction for each of them, so it may be as large as the peers' models together.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from protocol.ids import PeerId
from protocol.params import NOTHING, Params, State

__all__ = ["History"]

_ROUNDS = "last_round"  # section of the state: a number for each peer
_DIRECTION = "last."  # begins the name of the section of each peer


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The last direction of each peer, and the round that it is of, counted from 0."""

    directions: Mapping[PeerId, Params]
    rounds: Mapping[PeerId, int]

    @staticmethod
    def read(state: State) -> "History":
        rounds = {PeerId(peer): int(last) for peer, last in state.get(_ROUNDS, NOTHING).items()}
        return History({peer: state[_DIRECTION + peer] for peer in rounds}, rounds)

    def sections(self) -> State:
        """As sections of a state, without those that would be empty."""
        if not self.rounds:
            return {}
        directions = {_DIRECTION + peer: params for peer, params in self.directions.items()}
        return {_ROUNDS: {p: torch.tensor(last) for p, last in self.rounds.items()}, **directions}

    def of(self, peers: Collection[PeerId], *, since: int = 0) -> "History":
        """Only of these peers, and of rounds from `since` on; sorted by peer."""
        wanted = frozenset(peers)
        rounds = {p: t for p, t in sorted(self.rounds.items()) if p in wanted and t >= since}
        return History({peer: self.directions[peer] for peer in rounds}, rounds)

    def joined(self, directions: Mapping[PeerId, Params], round_no: int) -> "History":
        """With what arrived in this round in place of what was known."""
        rounds = {**self.rounds, **dict.fromkeys(directions, round_no)}
        return History({**self.directions, **directions}, rounds)

"""Start from the relay's model; without it, from one's own result.

The peer's half of every method with one common model: the relay aggregates (peer/aggregators), each
peer trains from what it publishes. What a method sends along, such as SCAFFOLD's control variate,
arrives as extras.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.mixers.base import Head, Probe
from peer.options.entry import NoOptions
from protocol.params import NO_STATE, State
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["Relay"]


@dataclass(frozen=True, slots=True)
class Relay:
    """`others` holds the relay's contribution alone, or nothing when it is missing."""

    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        chosen = others[0] if others else own
        trained = chosen.trained
        # Own extras are what this peer sent, not what a relay would send back.
        extras = trained.extras if others else Start(trained.params).extras
        start = Start(trained.params, trained.buffers, extras)
        notes = {} if others else {"local_round": 1.0}
        return Mixed(start, client_weight={chosen.sender: 1.0}, notes=notes), state

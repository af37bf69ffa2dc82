"""Local: every peer for itself. Nothing leaves it, nothing is waited for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.mixers.base import Head, Probe
from peer.options.methods import NoOptions
from protocol.params import NO_STATE, State
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["Local"]


@dataclass(frozen=True, slots=True)
class Local:
    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return None

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        return Mixed(Start(own.trained.params), client_weight={own.sender: 1.0}), state

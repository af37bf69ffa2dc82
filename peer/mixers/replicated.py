"""One common model without a relay: every peer runs the aggregator itself, on the same packets.

Equal packets in equal order give equal results, so all peers hold the same start and the same
memory of the aggregator, as long as nothing is lost on the way. What they hold is compared by
digests that travel with each contribution; the largest group that agrees is right (ties: the one
with the lowest name), and whoever is not in it adopts its state, which the round machine fetches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from peer.aggregators.base import Aggregator
from peer.mixers.base import Head, Probe
from protocol.ids import PeerId
from protocol.params import NOTHING, Params, State
from protocol.round import Aggregated, Contribution, Mixed, Start, Trained

__all__ = ["Replicated", "agreement", "pack_state", "unpack_state"]

_START = ("params", "buffers", "extras")  # sections of the common start
_MEMORY = "memory/"  # before the keys of the aggregator's own state


def agreement(contributions: Sequence[Contribution]) -> tuple[Contribution, ...]:
    """Find the largest group that was trained from one start, with one memory of the aggregator.

    Of two that are as large, it is the one with the lowest name. It is sorted by sender; the state
    of its first one is what all others adopt.

    Args:
        contributions: at least one.
    """
    ordered = sorted(contributions, key=lambda c: c.sender)
    groups: dict[tuple[bytes, bytes], list[Contribution]] = {}
    for contribution in ordered:
        groups.setdefault((contribution.base, contribution.memory), []).append(contribution)
    largest = max(groups.values(), key=len)  # the first of them
    return tuple(largest)


def pack_state(start: Start, memory: State) -> State:
    """Start and memory as one state."""
    sections = zip(_START, (start.params, start.buffers, start.extras), strict=True)
    return {**dict(sections), **{_MEMORY + key: params for key, params in memory.items()}}


def unpack_state(state: State) -> tuple[Start, State]:
    """The inverse of `pack_state`; sections that are not there are empty."""
    start = Start(*(state.get(section, NOTHING) for section in _START))
    memory = {k.removeprefix(_MEMORY): v for k, v in state.items() if k.startswith(_MEMORY)}
    return start, memory


@dataclass(frozen=True, slots=True)
class Replicated:
    aggregator: Aggregator

    def init(self, start: Start) -> State:
        return pack_state(start, self.aggregator.init(start))

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        """Aggregate the contributions that were trained from the own start."""
        everyone = [own, *others]
        agreed = [c for c in everyone if (c.base, c.memory) == (own.base, own.memory)]
        roster = sorted(contribution.sender for contribution in everyone)
        return self.combine(state, agreed, roster)

    def combine(
        self, state: State, contributions: Sequence[Contribution], roster: Sequence[PeerId]
    ) -> tuple[Mixed, State]:
        """Aggregate contributions of one start.

        Args:
            state: of that start.
            contributions: at least one.
            roster: all peers, present or not.
        """
        ordered = sorted(contributions, key=lambda c: c.sender)
        start, memory = unpack_state(state)
        done, memory = self.aggregator.aggregate(memory, start, ordered, roster)
        return _mixed(done, ordered), pack_state(done.start, memory)


def _mixed(done: Aggregated, contributions: Sequence[Contribution]) -> Mixed:
    """Evidence in the terms of a mixer: shares are those of samples, which most methods use."""
    samples = {c.sender: float(c.trained.num_examples) for c in contributions}
    whole = sum(samples.values()) or 1.0
    shares = {name: n / whole for name, n in samples.items()}
    return Mixed(done.start, client_weight=shares, notes=done.notes, groups=done.groups)


def memory_of(state: State) -> Params:
    """The aggregator's memory as one flat point, by `key/name`."""
    _, memory = unpack_state(state)
    return {f"{key}/{name}": t for key, params in memory.items() for name, t in params.items()}

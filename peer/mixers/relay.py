"""Start from the relay's model; without it, from one's own result.

The peer's half of every method with one common model: the relay aggregates (peer/aggregators), each
peer trains from what it publishes. What a method sends along, such as SCAFFOLD's control variate,
arrives as extras.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from peer.mixers.base import Head, Probe
from peer.options.entry import NoOptions
from protocol.params import NO_STATE, Params, State, weighted_mean
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["Relay"]


@dataclass(frozen=True, slots=True)
class Relay:
    """`others` holds the relay's contribution, or nothing when it is missing.

    Of several relays the mean is taken, weighed by the samples behind them.
    """

    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        if not others:  # own extras are what this peer sent, not what a relay would send back
            start = Start(own.trained.params, own.trained.buffers)
            notes = {"local_round": 1.0} if own.round_no else {}  # else it is the initial model
            return Mixed(start, client_weight={own.sender: 1.0}, notes=notes), state
        samples = [max(c.trained.num_examples, 1) for c in others]
        shares = {c.sender: n / sum(samples) for c, n in zip(others, samples, strict=True)}

        def mean(section: Callable[[Trained], Params]) -> Params:
            return weighted_mean((section(c.trained), shares[c.sender]) for c in others)

        start = Start(mean(lambda t: t.params), mean(lambda t: t.buffers), mean(lambda t: t.extras))
        return Mixed(start, client_weight=shares), state

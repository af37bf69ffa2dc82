"""A relay's newest model beside the start of a round, for solvers that measure against it.

It rides as extras of the start, and a solver keeps the last one in its state: a relay is never
waited for, so there are rounds in which nothing new comes.
"""

from collections.abc import Sequence

from protocol.ids import PeerId
from protocol.params import NOTHING, Params, State
from protocol.round import Contribution, Start

__all__ = ["referenced", "with_relay_model"]

_PREFIX = "relay/"  # of the names among a start's extras
_KEY = "relay"  # in a solver's state


def with_relay_model(start: Start, relay: PeerId, collected: Sequence[Contribution]) -> Start:
    """Lay what `relay` sent beside the start, as numbers of its own; nothing where it sent none."""
    sent = next((c.trained.params for c in collected if c.sender == relay), NOTHING)
    beside = {f"{_PREFIX}{name}": tensor.detach().clone() for name, tensor in sent.items()}
    return Start(start.params, start.buffers, {**start.extras, **beside})


def referenced(start: Start, state: State) -> tuple[Params, State]:
    """The relay's newest model that has come so far, and the state that remembers it.

    Before the first one, and for tensors that a relay does not have (layers that stay local), it is
    the start itself.
    """
    sent = {
        name.removeprefix(_PREFIX): tensor
        for name, tensor in start.extras.items()
        if name.startswith(_PREFIX)
    }
    newest = sent or state.get(_KEY, NOTHING)
    kept = {**state, _KEY: newest} if newest else state
    return {**start.params, **{n: newest[n] for n in start.params if n in newest}}, kept

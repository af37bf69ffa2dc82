"""Where a round's training begins, beyond what a mixer says."""

from protocol.params import Params, weighted_mean
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["arrive", "owned"]


def arrive(initial: Trained, others: list[Contribution]) -> Mixed:
    """Begin as a late joiner does: at the neighbours' mean, and where they share nothing, anew."""
    weights = {c.sender: c.freshness / sum(o.freshness for o in others) for c in others}
    params = weighted_mean((c.trained.params, weights[c.sender]) for c in others)
    buffers = weighted_mean((c.trained.buffers, weights[c.sender]) for c in others)
    start = Start({**initial.params, **params}, {**initial.buffers, **buffers})
    return Mixed(start, client_weight=weights)


def owned(start: Start) -> Start:
    """A start point that shares no memory with a receive buffer or with last round's result."""

    def cloned(params: Params) -> Params:
        return {name: tensor.detach().clone() for name, tensor in params.items()}

    return Start(cloned(start.params), cloned(start.buffers), cloned(start.extras))

"""Where FedCONST lets a common step go: rows of weights off their mean and their start value.

The peers' updates lie in that set of their common start; what is carried over from earlier rounds
lies in the sets of earlier starts. Projecting the sum puts it where the peers are.
"""

from collections.abc import Mapping

from peer.solvers.rows import Anchor
from protocol.params import Params, add, sub

__all__ = ["confined", "weight_rows"]


def weight_rows(params: Params) -> Mapping[str, int]:
    """Weights with rows, and the axis of the rows, from names and shapes: the first of each.

    Right for convolutions and linear layers. What a shape cannot tell apart from them (a transposed
    convolution, whose rows lie along its second axis; an embedding) needs the model's own list.
    """
    return {n: 0 for n, t in params.items() if n.rpartition(".")[2] == "weight" and t.ndim > 1}


def confined(direction: Params, start: Params, rows: Mapping[str, int]) -> Params:
    """Project a direction, float64, onto the set that FedCONST's peers stay in around `start`."""
    origin = {name: start[name].double() for name in direction}
    anchor = Anchor.at(origin, {n: axis for n, axis in rows.items() if n in origin}, "joint")
    return sub(anchor.confine(add(origin, direction)), origin)

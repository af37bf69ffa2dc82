"""What an aggregator must be given beside the parameters, and whether a contribution has it.

The relay asks before it aggregates, so that one peer without evidence is refused with the reason,
instead of a round failing for all.
"""

import math
from collections.abc import Set as AbstractSet

from peer.options.entry import Need
from protocol.params import Params
from protocol.round import Contribution, Start

__all__ = ["lacks"]


def lacks(needs: AbstractSet[Need], start: Start, contribution: Contribution) -> str:
    """Why an aggregator with these needs cannot take it; empty if it can.

    Whether it was trained from this start (`Need.COMMON_START`) is for its base digest to say.
    """
    trained = contribution.trained
    layout = _layout(start.params)
    if _layout(trained.params) != layout or _layout(trained.buffers) != _layout(start.buffers):
        return "its tensors are not those of the start"
    if trained.num_examples < 1 or trained.num_steps < 1:
        return f"{trained.num_examples} examples and {trained.num_steps} steps, both must be >= 1"
    if not 0.0 <= trained.nova_a < math.inf:
        return f"nova_a is {trained.nova_a}, must be finite and >= 0"
    if Need.LR in needs and not 0.0 < trained.lr < math.inf:
        return f"lr is {trained.lr}, must be finite and > 0"
    if Need.START_LOSS in needs and not 0.0 <= trained.start_loss < math.inf:
        return f"start_loss is {trained.start_loss}, must be finite and >= 0"
    if Need.VARIATES in needs and not layout.items() <= _layout(trained.extras).items():
        return "its extras hold no control variate for each parameter"
    return ""


def _layout(params: Params) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in params.items()}

"""What a mixer remembers of its neighbours' scores: a running average for each, by name.

Scores are logarithms of losses. The mean over those present is taken out before they are averaged:
only ratios between peers matter, and the losses of all fall as a run goes on. Who was away is
found again with the average that it left with.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from protocol.ids import PeerId
from protocol.params import Params

__all__ = ["remembered"]


def remembered(
    known: Params, senders: Sequence[PeerId], scores: Tensor, share: float
) -> tuple[Tensor, Params]:
    """Blend this round's scores with those of the rounds before.

    Args:
        known: the averages so far, by sender.
        senders: of this round, P of them.
        scores: (P,) or (P, C) float64.
        share: of the average so far in the new one, in [0, 1); who is new begins with this round's.

    Returns:
        The averages of these senders, of the shape of `scores`, and those of everybody.
    """
    centred = scores - scores.mean(dim=0)
    fresh: dict[str, Tensor] = {}
    for name, now in zip(senders, centred, strict=True):
        fresh[name] = known.get(name, now).lerp(now, 1.0 - share)
    return torch.stack(list(fresh.values())), {**known, **fresh}

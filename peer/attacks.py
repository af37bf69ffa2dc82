"""What a peer that attacks shares in place of what it trained, and which labels it trains on.

For studies of how well a method resists. Pure: tensors in, tensors out, and a seed. The attacks are
those of the field's benchmarks, such as Blades (Li et al., 2024, arXiv 2206.05359).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from peer.examples import Examples
from peer.options.attack import LABELFLIP, NOISE, SCALE, SIGNFLIP, Attack
from protocol.params import Params
from protocol.round import Start, Trained

__all__ = ["flip_labels", "poison"]

_Twist = Callable[[Tensor, Tensor], Tensor]  # (start, trained) -> what is shared


def poison(trained: Trained, start: Start, attack: Attack, seed: int) -> Trained:
    """What the attacker shares of a round.

    * `signflip`: start - c (trained - start), a step uphill; Li et al., 2019, arXiv 1811.03761.
    * `scale`: start + c (trained - start), a step too long; model replacement of Bagdasaryan et
      al., 2020, arXiv 1807.00459, with c chosen by hand.
    * `noise`: trained + c rms(trained) z with z normal, for each tensor; Blanchard et al., 2017,
      arXiv 1703.02757, with the deviation in lengths of what it hides.
    * `labelflip` shares what it trained: its labels are wrong already.

    Extras have no start that they moved from: zero stands for it. Integers and running statistics
    stay, and so does what never leaves the peer (`personal`).

    Args:
        trained: the honest result; it is not changed.
        start: where its training began.
        attack: which, and how strong.
        seed: of the noise; equal seeds give equal noise.
    """
    if attack.name == LABELFLIP:
        return trained
    twist = _twists(attack.strength, torch.Generator().manual_seed(seed))[attack.name]
    nowhere = {name: torch.zeros_like(tensor) for name, tensor in trained.extras.items()}
    return replace(
        trained,
        params=_twisted(twist, start.params, trained.params),
        extras=_twisted(twist, nowhere, trained.extras),
    )


def _twists(strength: float, chance: torch.Generator) -> Mapping[str, _Twist]:
    def noisy(_start: Tensor, trained: Tensor) -> Tensor:
        rms = trained.double().square().mean().sqrt().item() if trained.numel() else 0.0
        noise = torch.randn(trained.shape, generator=chance).to(trained)  # the same on a GPU
        return trained + strength * rms * noise

    return {
        NOISE: noisy,
        SCALE: lambda start, trained: start + strength * (trained - start),
        SIGNFLIP: lambda start, trained: start - strength * (trained - start),
    }


@torch.no_grad()
def _twisted(twist: _Twist, start: Params, trained: Params) -> Params:
    return {
        name: twist(start[name], tensor) if tensor.is_floating_point() else tensor
        for name, tensor in trained.items()
    }


def flip_labels(examples: Examples, num_classes: int, share: float, seed: int) -> Examples:
    """Give a share of the examples the label C - 1 - y; Fang et al., 2020, arXiv 1911.11815.

    With an odd number of classes the middle one stays as it is.

    Args:
        examples: they are not changed.
        num_classes: C, above every label.
        share: in (0, 1], rounded to whole examples.
        seed: of the draw; equal seeds draw the same ones.
    """
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))
    chosen = order[: round(share * len(examples))].to(examples.targets.device)
    targets = examples.targets.clone()
    targets[chosen] = num_classes - 1 - targets[chosen]
    return Examples(examples.inputs, targets)

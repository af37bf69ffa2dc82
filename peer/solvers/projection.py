"""A projection head: two layers between a model's features and its classifier, for MOON."""

from copy import deepcopy
from dataclasses import replace
from hashlib import blake2b

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from peer.mixers.base import Head
from peer.models.split import SplitModel
from peer.seeding import forked
from protocol.params import Params
from protocol.round import Start

__all__ = ["projected"]


class Projection(nn.Module):
    """Features (batch, d) to class scores, by way of a ReLU at d and the projection at `width`."""

    def __init__(self, features: int, width: int, classes: int, *, bias: bool) -> None:
        super().__init__()
        self.first = nn.Linear(features, features)
        self.second = nn.Linear(features, width)
        self.head = nn.Linear(width, classes, bias=bias)
        # PyTorch's own start would shrink features on their way (peer/models/plain.py)
        nn.init.kaiming_normal_(self.first.weight, nonlinearity="relu")
        nn.init.kaiming_normal_(self.second.weight, nonlinearity="linear")
        nn.init.zeros_(self.first.bias)
        nn.init.zeros_(self.second.bias)

    def forward(self, features: Tensor) -> Tensor:
        scores: Tensor = self.head(self.second(F.relu(self.first(features))))
        return scores


def projected(model: SplitModel, width: int) -> SplitModel:
    """The model with a projection of `width` before its classifier, which is drawn anew.

    Equal models give equal ones: what is drawn comes from the numbers of the old classifier, which
    the run's seed has drawn. The features of the new model are the projection.
    """
    old = model.start.params[model.head.weight]
    path, _, _ = model.head.weight.rpartition(".")
    with forked(_seed(old)):
        part = Projection(old.shape[1], width, len(old), bias=model.head.bias is not None)
    prefix = f"{path}." if path else ""
    drawn = {f"{prefix}{name}": p.detach().to(old) for name, p in part.named_parameters()}
    kept = {n: t for n, t in model.start.params.items() if n not in model.head.names}
    module = _swapped(model.module, path, part.to("meta"))
    ordered: Params = {
        name: ({**kept, **drawn})[name]
        for name, _ in module.named_parameters()
        if name in kept or name in drawn
    }
    rows = {name: axis for name, axis in model.rows.items() if name in kept}
    return replace(
        model,
        module=module,
        head=Head(f"{prefix}head.weight", f"{prefix}head.bias" if model.head.bias else None),
        rows=rows | {name: 0 for name in drawn if name.endswith("weight")},
        start=Start(ordered, model.start.buffers),
    )


def _seed(tensor: Tensor) -> int:
    numbers = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return int.from_bytes(blake2b(numbers, digest_size=8).digest()) >> 1


def _swapped(module: nn.Module, path: str, part: nn.Module) -> nn.Module:
    """A copy whose layer at `path` is `part`, under all the names that the layer has."""
    whole = deepcopy(module)
    old = whole.get_submodule(path)
    if old is whole:
        return part
    paths = [name for name, m in whole.named_modules(remove_duplicate=False) if m is old]
    for name in paths:
        parent, _, leaf = name.rpartition(".")
        setattr(whole.get_submodule(parent), leaf, part)
    return whole

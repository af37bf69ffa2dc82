"""Which tensors of a model are aligned together, decided from names and shapes alone.

`module`: weight and bias of a layer are one group, any other tensor is one by itself. A
normalisation layer joins the convolution before it when both belong to the same block: it is a
layer of vectors only, one entry for each channel that the convolution makes.
"""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from protocol.params import Params

__all__ = ["MODEL", "layer_groups"]

MODEL = "(model)"  # the name of a group of all tensors, and of those that no layer owns

_OF_LAYERS = frozenset({"weight", "bias"})
_CONVOLUTION_AXES = 3  # out, in, and at least one of space


def layer_groups(
    params: Params, mode: Literal["module", "tensor", "global"]
) -> Mapping[str, tuple[str, ...]]:
    """Names of tensors by group, in the order of the model."""
    if mode == "global":
        return {MODEL: tuple(params)}
    if mode == "tensor":
        return {name: (name,) for name in params}
    layers: dict[str, list[str]] = {}
    for name in params:
        layers.setdefault(_layer(name), []).append(name)
    groups: dict[str, list[str]] = {}
    last = ""
    for layer, names in layers.items():
        if groups and _is_neighbour(layer, last) and _normalises(names, groups[last], params):
            groups[last] += names
        else:
            groups[layer] = names
            last = layer
    return {group: tuple(names) for group, names in groups.items()}


def _layer(name: str) -> str:
    layer, _, leaf = name.rpartition(".")
    return (layer or MODEL) if leaf in _OF_LAYERS else name


def _is_neighbour(layer: str, before: str) -> bool:
    """Whether both belong to one block, as `body.3.norm1` and `body.3.conv1` do."""
    return layer.rpartition(".")[0] == before.rpartition(".")[0]


def _normalises(names: list[str], group: list[str], params: Params) -> bool:
    """Whether these are a layer's vectors over the channels of the group's convolution."""
    leaves = {name.rpartition(".")[2] for name in names}
    shapes = {tuple(params[name].shape) for name in names}
    channels = {(size,) for name in group for size in _channels(params[name])}
    return leaves <= _OF_LAYERS and len(shapes) == 1 and shapes <= channels


def _channels(tensor: Tensor) -> tuple[int, ...]:
    """Sizes of the axes that may be output channels; a transposed convolution has them second."""
    return tuple(tensor.shape[:2]) if tensor.ndim >= _CONVOLUTION_AXES else ()

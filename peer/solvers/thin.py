"""The last stage of a model at a smaller width: its first channels, with its own weights' slices.

A stage is a run of layers of one Sequential: the trailing residual blocks of one width, or the last
convolution with its normalisation and activation. Yu et al., 2019, arXiv 1812.08928, for the
slicing. Normalisation uses the batch's statistics and none are kept; a batch of one example has
none, and then slices of the stage's running ones are used, as in every other pass.
"""

from collections import OrderedDict
from copy import deepcopy
from dataclasses import dataclass
from itertools import takewhile
from math import ceil

import torch
from torch import Tensor, nn
from torch.func import functional_call

from peer.models.resnet import Block, Pad
from peer.models.split import Mode, SplitModel
from protocol.errors import ModelError
from protocol.params import Params

__all__ = ["ThinStage"]

_NORMS = (nn.BatchNorm2d, nn.GroupNorm)
_ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid)


@dataclass(frozen=True, slots=True, eq=False)
class ThinStage:
    """The stage of a model, and a module that runs it at a smaller width.

    Attributes:
        first: path of the layer whose input the stage takes.
        last: path of the layer whose output it gives.
        prefix: of the names of its tensors in the model.
        width: share of the channels, in (0, 1).
    """

    first: str
    last: str
    prefix: str
    module: nn.Module
    width: float

    @staticmethod
    def of(model: SplitModel, width: float) -> "ThinStage":
        """Find the last stage and copy it at `width`.

        Raises:
            ModelError: there is no convolution, or a layer that cannot be thinned.
        """
        path, children = _last_stage(model)
        prefix = f"{path}." if path else ""
        names = list(children)
        module = nn.Sequential(OrderedDict(deepcopy(children)))
        for layer in module.modules():
            _thin(model.name, layer, width)
        return ThinStage(f"{prefix}{names[0]}", f"{prefix}{names[-1]}", prefix, module, width)

    def check(self, model: SplitModel) -> None:
        """Try the stage on the model's initial numbers.

        Raises:
            ModelError: it does not run at this width, or does not give the channels that it should.
        """
        start = model.start
        like = next(iter(start.params.values()))
        noise = torch.zeros(2, *model.input_shape, dtype=like.dtype, device=like.device)
        with torch.no_grad():
            seen = model.run(
                start.params, start.buffers, noise, Mode.EVALUATE, (self.first, self.last)
            ).seen
            before, after = seen[self.first][0], seen[self.last][1]
            try:
                found = self.run(start.params, start.buffers, self.slice(before)).shape
            except Exception as error:
                raise ModelError(
                    f"{model.name}: its last stage, {self.first} to {self.last}, does not run at "
                    f"width {self.width}: {type(error).__name__}: {error}"
                ) from error
        expected = (2, _kept(after.shape[1], self.width), *after.shape[2:])
        if tuple(found) != expected:
            raise ModelError(
                f"{model.name}: its last stage, {self.first} to {self.last}, gives "
                f"{tuple(found)} at width {self.width}, it should give {expected}"
            )

    def slice(self, inputs: Tensor) -> Tensor:
        """The channels that the thin stage takes: (batch, channels, height, width)."""
        return inputs[:, : _kept(inputs.shape[1], self.width)]

    def run(self, params: Params, buffers: Params, inputs: Tensor) -> Tensor:
        """What the thin stage makes of `slice`d inputs; differentiable in `params`."""
        names = [n for n, _ in (*self.module.named_parameters(), *self.module.named_buffers())]
        whole = {**params, **buffers}
        tensors = {name: self._first_channels(whole[f"{self.prefix}{name}"]) for name in names}
        for layer in self.module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.training = len(inputs) > 1
        outputs: Tensor = functional_call(self.module, tensors, (inputs,))
        return outputs

    def _first_channels(self, tensor: Tensor) -> Tensor:
        """Slice of the first two axes of a weight, or of the only one of a vector.

        Running statistics are copied: the pass moves them, and nobody is to see that.
        """
        kept = tuple(slice(_kept(size, self.width)) for size in tensor.shape[:2])
        return tensor[kept] if tensor.requires_grad else tensor[kept].clone()


def _kept(channels: int, width: float) -> int:
    return ceil(channels * width)


def _last_stage(model: SplitModel) -> tuple[str, dict[str, nn.Module]]:
    """Path of the module that holds the stage, and the stage's layers by their names in it.

    Raises:
        ModelError: there is no convolution.
    """
    path, parent, total = "", model.module, len(_convolutions(model.module))
    while True:
        children = dict(parent.named_children())
        found = [name for name, child in children.items() if _convolutions(child)]
        if not found:
            raise ModelError(
                f"{model.name} has no 2-D convolution, and so no last stage to align",
                hint="take a model with one, e.g. lenet5, cnn or resnet20, or another solver",
            )
        name, child = found[-1], children[found[-1]]
        sequence = isinstance(parent, nn.Sequential)
        if isinstance(child, nn.Conv2d):
            return path, _block_of(children, name) if sequence else {name: child}
        # what holds every convolution is the body, and the stage lies within it
        if sequence and not isinstance(child, nn.Sequential) and len(_convolutions(child)) < total:
            return path, _blocks_like(children, name)
        path, parent = f"{path}.{name}" if path else name, child


def _block_of(children: dict[str, nn.Module], name: str) -> dict[str, nn.Module]:
    """A convolution, and the normalisation and activation that follow it."""
    order = list(children)
    after = order[order.index(name) + 1 :]
    follow = takewhile(lambda n: isinstance(children[n], (*_NORMS, *_ACTIVATIONS)), after)
    return {n: children[n] for n in (name, *follow)}


def _blocks_like(children: dict[str, nn.Module], name: str) -> dict[str, nn.Module]:
    """A composite block, and those directly before it that have its type and width."""
    order = list(children)
    kind, out = type(children[name]), _convolutions(children[name])[-1].out_channels
    before = takewhile(
        lambda n: type(children[n]) is kind and _convolutions(children[n])[-1].out_channels == out,
        reversed(order[: order.index(name)]),
    )
    return {n: children[n] for n in (*reversed(list(before)), name)}


def _convolutions(module: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]


def _thin(name: str, layer: nn.Module, width: float) -> None:
    """Tell a copied layer how many channels it has now; its tensors are sliced when it runs.

    Raises:
        ModelError: it holds tensors whose axes are not channels.
    """
    match layer:
        case nn.Conv2d(groups=1):
            pass
        case nn.BatchNorm2d():
            layer.num_features = _kept(layer.num_features, width)
        case nn.GroupNorm():
            size = layer.num_channels // layer.num_groups
            layer.num_channels = _kept(layer.num_channels, width)
            layer.num_groups = layer.num_channels // size if layer.num_channels % size == 0 else 1
        case Block(shortcut=Pad() as pad, conv1=convolution):
            wide, narrow = convolution.out_channels, convolution.in_channels
            pad.extra = _kept(wide, width) - _kept(narrow, width)
        case _:
            if [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]:
                raise ModelError(
                    f"{name}: its last stage has a {type(layer).__name__} that cannot be thinned",
                    hint="fedalign takes stages of ungrouped Conv2d, BatchNorm2d and GroupNorm",
                )

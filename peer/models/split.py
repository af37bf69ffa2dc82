"""A model as a function: the module is only the recipe, its numbers travel beside it.

Knows which tensors are the classifier, which are weights with rows, and how to run the module on
parameters and buffers that it does not own. The module itself holds no numbers (it lies on the
meta device), so nothing can be trained or averaged behind a caller's back.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from peer.mixers.base import Head
from protocol.errors import LayoutError
from protocol.params import Params
from protocol.round import Start

__all__ = ["Mode", "Pass", "SplitModel"]


class Mode(Enum):
    """How the layers behave that are not pure functions.

    A batch of one example has no statistics of its own: BatchNorm then uses its running ones in
    every mode, and leaves them alone.
    """

    TRAIN = "dropout on; BatchNorm uses the batch and moves its statistics"
    EVALUATE = "dropout off; BatchNorm uses its statistics"
    PROBE = "dropout off; BatchNorm uses the batch and leaves its statistics alone"


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What one run of a model gave."""

    logits: Tensor  # class scores: (batch, classes)
    features: Tensor  # what the classifier saw: (batch, width)
    buffers: Params  # what they are after the pass
    seen: Mapping[str, tuple[Tensor, Tensor]]  # first input and output of each watched submodule


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitModel:
    """A classifier on top of features.

    Attributes:
        rows: names of convolution and linear weights, with the axis of their output channels.
        start: the initial numbers. Frozen parameters count as buffers: they are shared as they
            are, and never part of any geometry.
    """

    name: str
    module: nn.Module
    head: Head
    rows: Mapping[str, int]
    input_shape: tuple[int, ...]
    num_classes: int
    start: Start

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> "SplitModel":
        """Move the initial numbers; `dtype` is for those that are floating-point."""

        def moved(params: Params) -> Params:
            return {
                name: tensor.to(device, dtype if tensor.is_floating_point() else None)
                for name, tensor in params.items()
            }

        return replace(self, start=Start(moved(self.start.params), moved(self.start.buffers)))

    def logits(
        self, params: Params, buffers: Params, inputs: Tensor, mode: Mode
    ) -> tuple[Tensor, Params]:
        """Class scores (batch, classes), and what the buffers are after the pass.

        Raises:
            LayoutError: `params` or `buffers` are not those of this model.
        """
        if params.keys() != self._param_names or buffers.keys() != self._buffer_names:
            raise LayoutError(f"these are not the parameters and buffers of {self.name}")
        if self.module.training != (mode is Mode.TRAIN):  # it walks all modules
            self.module.train(mode is Mode.TRAIN)
        for norm in self._norms:
            norm.training = mode is not Mode.EVALUATE and len(inputs) > 1
        moved = {name: tensor.clone() for name, tensor in buffers.items()}
        scores: Tensor = functional_call(self.module, ({**params}, moved), (inputs,))
        return scores, moved

    def run(
        self,
        params: Params,
        buffers: Params,
        inputs: Tensor,
        mode: Mode,
        watch: Sequence[str] = (),
    ) -> Pass:
        """`logits`, with a look inside.

        Args:
            params: as for `logits`.
            buffers: as for `logits`.
            inputs: (batch, *input_shape).
            mode: how layers behave.
            watch: paths of submodules; of one that runs more than once, the last time is seen.

        Raises:
            LayoutError: `params` or `buffers` are not those of this model.
        """
        seen: dict[str, tuple[Tensor, Tensor]] = {}

        def look(path: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
            return lambda _, args, output: seen.update({path: (args[0], output)})

        classifier = self.head.weight.rpartition(".")[0]
        with ExitStack() as hooks:
            for path in {classifier, *watch}:
                layer = self.module.get_submodule(path)
                hooks.callback(layer.register_forward_hook(look(path)).remove)
            logits, moved = self.logits(params, buffers, inputs, mode)
        return Pass(logits, seen[classifier][0], moved, {path: seen[path] for path in watch})

    def features(self, params: Params, buffers: Params, inputs: Tensor, mode: Mode) -> Tensor:
        """What the classifier sees: (batch, width).

        Raises:
            LayoutError: `params` or `buffers` are not those of this model.
        """
        return self.run(params, buffers, inputs, mode).features

    @cached_property
    def _param_names(self) -> frozenset[str]:
        return frozenset(self.start.params)

    @cached_property
    def _buffer_names(self) -> frozenset[str]:
        return frozenset(self.start.buffers)

    @cached_property
    def _norms(self) -> tuple[_BatchNorm, ...]:
        return tuple(m for m in self.module.modules() if isinstance(m, _BatchNorm))

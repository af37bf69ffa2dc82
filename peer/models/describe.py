"""From a torch module to a SplitModel: what it is made of, found and checked by running it."""

from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import is_lazy

from peer.mixers.base import Head
from peer.models.split import SplitModel
from protocol.errors import ModelError
from protocol.params import Params
from protocol.round import Start

__all__ = ["describe"]

_HOW = "end the model with an nn.Linear, or name it in an attribute `head` of the module"


def describe(
    name: str, module: nn.Module, input_shape: tuple[int, ...], num_classes: int
) -> SplitModel:
    """Find the classifier, the buffers and the weights with rows; the module ends without numbers.

    The classifier is what the module's attribute `head` says (an nn.Linear, or the dotted name of
    one), else the last nn.Linear with `num_classes` outputs whose output is the model's.

    Raises:
        ModelError: it cannot be used, and why.
    """
    _check_parameters(name, module)
    head = _find_head(name, module, input_shape, num_classes)
    params = {n: p.detach().clone() for n, p in module.named_parameters() if p.requires_grad}
    frozen = {n: p.detach().clone() for n, p in module.named_parameters() if not p.requires_grad}
    buffers = frozen | {n: b.detach().clone() for n, b in module.named_buffers()}
    missing = [tensor for tensor in head.names if tensor not in params]
    if missing:
        raise ModelError(f"{name}: the classifier's {missing[0]} is not a trainable parameter")
    return SplitModel(
        name=name,
        module=module.to("meta"),
        head=head,
        rows=dict(_rows(module, params)),
        input_shape=input_shape,
        num_classes=num_classes,
        start=Start(params, buffers),
    )


def _check_parameters(name: str, module: nn.Module) -> None:
    for tensor_name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(tensor):
            raise ModelError(
                f"{name}: {tensor_name} has no shape before the first batch",
                hint="give the layer its sizes instead of a lazy one",
            )
        if tensor.is_complex():
            raise ModelError(f"{name}: {tensor_name} is complex, only real numbers are exchanged")
    if not any(p.requires_grad for p in module.parameters()):
        raise ModelError(f"{name}: no parameter is trainable")
    _check_ties(name, module)


def _check_ties(name: str, module: nn.Module) -> None:
    """Refuse a parameter with two owners; a declared head is another name of one layer."""
    owners: dict[int, tuple[nn.Module, str]] = {}
    for path, layer in module.named_modules(remove_duplicate=False):
        for leaf, tensor in layer.named_parameters(recurse=False):
            here = f"{path}.{leaf}" if path else leaf
            first, twin = owners.setdefault(id(tensor), (layer, here))
            declared = first is layer is getattr(module, "head", None)
            if twin != here and not declared:
                raise ModelError(
                    f"{name}: {twin} and {here} are one tensor (tied), which cannot be mixed",
                    hint="give each its own",
                )


def _rows(module: nn.Module, params: Params) -> Iterator[tuple[str, int]]:
    for name, layer in module.named_modules():
        weight = f"{name}.weight" if name else "weight"
        if weight not in params:
            continue
        if isinstance(layer, _ConvTransposeNd):
            if layer.groups == 1:  # otherwise a row is spread over both of the first two axes
                yield weight, 1
        elif isinstance(layer, _ConvNd | nn.Linear):
            yield weight, 0


def _find_head(
    name: str, module: nn.Module, input_shape: tuple[int, ...], num_classes: int
) -> Head:
    candidates, declared = _candidates(name, module, num_classes)
    logits, inputs = _trial_run(name, module, candidates, input_shape)
    if tuple(logits.shape) != (2, num_classes):
        raise ModelError(
            f"{name}: two inputs of {input_shape} gave an output of {tuple(logits.shape)}, "
            f"it must be {(2, num_classes)}"
        )
    for path in reversed(list(candidates)):
        if path in inputs and _makes(candidates[path], inputs[path], logits):
            prefix = f"{path}." if path else ""
            bias = None if candidates[path].bias is None else f"{prefix}bias"
            return Head(weight=f"{prefix}weight", bias=bias)
    if declared:
        raise ModelError(
            f"{name}: its declared head {declared!r} does not make the output",
            hint="the output must be that nn.Linear's own, with nothing after it",
        )
    seen = ", ".join(path or "the module itself" for path in candidates) or "none"
    raise ModelError(
        f"{name}: no classifier found: it must be an nn.Linear with {num_classes} outputs which "
        f"are the model's output; such layers by size: {seen}",
        hint=_HOW,
    )


def _candidates(
    name: str, module: nn.Module, num_classes: int
) -> tuple[Mapping[str, nn.Linear], str]:
    """Linear layers that may be the classifier, by path; and the path that was declared."""
    layers = {path: m for path, m in module.named_modules() if isinstance(m, nn.Linear)}
    declared = getattr(module, "head", None)
    if isinstance(declared, nn.Linear):
        declared = next(path for path, layer in layers.items() if layer is declared)
    if not isinstance(declared, str):
        return {p: layer for p, layer in layers.items() if layer.out_features == num_classes}, ""
    if declared not in layers:
        raise ModelError(
            f"{name}: its attribute head says {declared!r}, which is no nn.Linear of it",
            hint=f"there are: {', '.join(layers) or 'none'}",
        )
    return {declared: layers[declared]}, declared


def _trial_run(
    name: str,
    module: nn.Module,
    candidates: Mapping[str, nn.Linear],
    input_shape: tuple[int, ...],
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The output for two inputs, and what each candidate saw."""
    inputs: dict[str, Tensor] = {}

    def watch(path: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, args: inputs.update({path: args[0].detach().clone()})

    hooks = [layer.register_forward_pre_hook(watch(path)) for path, layer in candidates.items()]
    module.eval()
    noise = torch.rand(2, *input_shape, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            logits = module(noise)
    except Exception as error:
        raise ModelError(
            f"{name}: it failed on two inputs of {input_shape}: {type(error).__name__}: {error}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(logits, Tensor):
        raise ModelError(f"{name}: its output is a {type(logits).__name__}, it must be a tensor")
    return logits, inputs


def _makes(layer: nn.Linear, features: Tensor, logits: Tensor) -> bool:
    with torch.no_grad():
        return features.ndim == 2 and torch.equal(
            F.linear(features, layer.weight, layer.bias), logits
        )

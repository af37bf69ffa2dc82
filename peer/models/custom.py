"""A person's own model: `--model package.module:factory`.

The factory (a function or a class) is called as `factory(input_shape, num_classes)` and returns an
`nn.Module` that takes (batch, *input_shape) float32 and returns (batch, num_classes) scores. It is
looked for where Python looks, and in the current directory first.
"""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

from torch import nn

from protocol.errors import ModelError

__all__ = ["load_factory", "make"]

Factory = Callable[[tuple[int, ...], int], object]


def load_factory(name: str) -> Factory:
    """Import what `package.module:factory` names.

    Raises:
        ModelError: the name is torn, the module cannot be imported, or has no such factory.
    """
    module_name, _, factory_name = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), factory_name]):
        raise ModelError(f"model {name!r} is not of the form package.module:factory")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ModelError(
            f"model {name}: importing {module_name} failed: {type(error).__name__}: {error}",
            hint=f"looked in {here} and in Python's own path",
        ) from error
    finally:
        sys.path.remove(here)
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        found = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ModelError(
            f"model {name}: {module_name} has no function or class {factory_name}",
            hint=f"it has: {', '.join(found) or 'none'}",
        )
    made: Factory = factory
    return made


def make(name: str, factory: Factory, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Call the factory.

    Raises:
        ModelError: it cannot be called so, it failed, or what it returned is no module.
    """
    try:
        inspect.signature(factory).bind(input_shape, num_classes)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"model {name}: it cannot be called with (input_shape, num_classes): {error}",
            hint="let it take exactly these two",
        ) from error
    try:
        module = factory(input_shape, num_classes)
    except Exception as error:
        raise ModelError(
            f"model {name}: making it for inputs of {input_shape} and {num_classes} classes "
            f"failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"model {name}: it returned a {type(module).__name__}, it must return an nn.Module"
        )
    return module

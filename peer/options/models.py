"""The models that can be chosen by name, without building them."""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.errors import ModelError
from protocol.suggest import did_you_mean

__all__ = ["MODELS", "NORMS", "ModelEntry", "check_model"]

NORMS = ("group", "batch")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    summary: str
    normalised: bool  # whether `norm` has layers to act on


MODELS: Mapping[str, ModelEntry] = {
    "mlp": ModelEntry("two hidden layers of 200", normalised=False),
    "lenet5": ModelEntry("two 5x5 convolutions, 6 and 16 channels; 120-84", normalised=False),
    "cnn": ModelEntry("three 3x3 convolutions, 16-32-64 channels; 128", normalised=True),
    "craft-cnn": ModelEntry("two 5x5 convolutions of 64; 384-192, dropout", normalised=False),
    "resnet20": ModelEntry("CIFAR ResNet, identity shortcuts", normalised=True),
    "resnet56": ModelEntry("CIFAR ResNet, identity shortcuts", normalised=True),
    "resnet110": ModelEntry("CIFAR ResNet, identity shortcuts", normalised=True),
    "resnet18": ModelEntry("ResNet-18 with a 3x3 stem", normalised=True),
}


def check_model(name: str, norm: str) -> None:
    """Refuse a choice that cannot be built; a person's own model is `package.module:factory`.

    Raises:
        ModelError: there is no such model or norm, or `norm` has nothing to act on.
    """
    if norm not in NORMS:
        raise ModelError(f"norm = {norm} cannot be used: it must be {' or '.join(NORMS)}")
    if ":" in name:
        return
    if name not in MODELS:
        own = f"there are: {', '.join(MODELS)}, or package.module:factory for your own"
        raise ModelError(f"there is no model {name!r}", hint=did_you_mean(name, MODELS) or own)
    if norm != NORMS[0] and not MODELS[name].normalised:
        others = ", ".join(other for other, entry in MODELS.items() if entry.normalised)
        raise ModelError(
            f"{name} has no normalisation layers, norm = {norm} has nothing to act on",
            hint=f"leave norm out, or take one of: {others}",
        )

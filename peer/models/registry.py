"""Every model by name: built, initialised from a seed, and split."""

from collections import OrderedDict
from collections.abc import Callable, Mapping

from torch import nn

from peer.models.custom import load_factory, make
from peer.models.describe import describe
from peer.models.plain import Body, cnn, craft_cnn, lenet5, mlp
from peer.models.resnet import cifar_resnet, resnet18
from peer.models.split import SplitModel
from peer.options.models import check_model
from peer.seeding import forked
from protocol.errors import ModelError

__all__ = ["BODIES", "build_model"]

# called with (input shape, norm)
BODIES: Mapping[str, Callable[[tuple[int, ...], str], Body]] = {
    "mlp": mlp,
    "lenet5": lenet5,
    "cnn": cnn,
    "craft-cnn": craft_cnn,
    "resnet20": cifar_resnet(3),
    "resnet56": cifar_resnet(9),
    "resnet110": cifar_resnet(18),
    "resnet18": resnet18,
}


def build_model(
    name: str, input_shape: tuple[int, ...], num_classes: int, norm: str, seed: int
) -> SplitModel:
    """Build a model and its initial numbers, the same wherever the seed is.

    Args:
        name: of `BODIES`, or a person's own `package.module:factory` (peer/models/custom.py).
        input_shape: of one example, e.g. (channels, height, width).
        num_classes: >= 2.
        norm: group or batch, where the model has normalisation layers.
        seed: of the initial numbers.

    Raises:
        ModelError: it cannot be built, or cannot be used.
    """
    check_model(name, norm)
    if num_classes < 2:
        raise ModelError(f"a classifier needs at least 2 classes, got {num_classes}")
    with forked(seed):
        if ":" in name:
            module = make(name, load_factory(name), input_shape, num_classes)
        else:
            module = _built_in(*BODIES[name](input_shape, norm), num_classes)
    return describe(name, module, input_shape, num_classes)


def _built_in(body: nn.Sequential, width: int, num_classes: int) -> nn.Module:
    return nn.Sequential(OrderedDict(body=body, head=nn.Linear(width, num_classes)))

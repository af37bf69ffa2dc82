"""Small built-in networks: a body that ends in a vector, and one linear classifier.

Each function returns the body and the width of its vector; the classifier is added by the registry.
"""

from math import prod
from typing import TypeAlias

from torch import nn

from protocol.errors import ModelError

__all__ = ["Body", "cnn", "craft_cnn", "kaiming", "lenet5", "mlp", "norm_layer"]


Body: TypeAlias = tuple[nn.Sequential, int]


def norm_layer(norm: str, channels: int, groups: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(groups, channels)


def kaiming(body: nn.Sequential) -> nn.Sequential:
    """Start weights as ReLUs want them (He et al., 2015, arXiv 1502.01852), biases at zero.

    PyTorch's own are smaller by a factor of 2.4. Without normalisation LeNet-5 then spends some
    hundred steps on its first plateau, which is more than a short run on few samples has.
    """
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return body


def mlp(input_shape: tuple[int, ...], _norm: str) -> Body:
    first = nn.Linear(prod(input_shape), 200)
    body = nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
    return kaiming(body), 200


def lenet5(input_shape: tuple[int, ...], _norm: str) -> Body:
    """LeCun et al., 1998, with ReLU and maximum pooling; 28x28 is padded to the original 32x32."""
    channels, height, width = _image("lenet5", input_shape, least=12)
    padding = 2 if min(height, width) < 32 else 0
    high, wide = (_after(side + 2 * padding) for side in (height, width))
    body = nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * high * wide, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return kaiming(body), 84


def cnn(input_shape: tuple[int, ...], norm: str) -> Body:
    """Three normalised convolutions, with PyTorch's own initial weights.

    Behind a normalisation their scale does not change the output, only how far a step turns them:
    the smaller they start, the faster they learn.
    """
    channels, height, width = _image("cnn", input_shape, least=8)
    layers: list[nn.Module] = []
    for out in (16, 32, 64):
        layers += [
            nn.Conv2d(channels, out, 3, padding=1, bias=False),
            norm_layer(norm, out, groups=4),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        channels = out
    flat = channels * (height // 8) * (width // 8)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, 128), nn.ReLU()), 128


def craft_cnn(input_shape: tuple[int, ...], _norm: str) -> Body:
    """The CNN of CRAFT's experiments (arXiv 2605.21317)."""
    channels, height, width = _image("craft-cnn", input_shape, least=16)
    body = nn.Sequential(
        nn.Conv2d(channels, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * _after(height) * _after(width), 384),
        nn.Dropout(0.2),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.Dropout(0.5),
        nn.ReLU(),
    )
    return kaiming(body), 192


def _after(side: int) -> int:
    """What two rounds of an unpadded 5x5 convolution and 2x2 pooling leave of a side."""
    return ((side - 4) // 2 - 4) // 2


def _image(name: str, input_shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        raise ModelError(
            f"{name} needs images of (channels, height, width) of at least {least}x{least}, "
            f"got {input_shape}",
            hint="take mlp, or resize the images",
        )
    channels, height, width = input_shape
    return channels, height, width

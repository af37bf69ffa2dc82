"""Residual networks for small images.

He et al., 2016, arXiv 1512.03385: section 4.2 for the CIFAR nets with identity shortcuts
(option A), section 4.1 for ResNet-18 with projections (option B), its stem a single 3x3.
"""

from collections.abc import Callable

import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from peer.models.plain import Body, kaiming, norm_layer
from protocol.errors import ModelError

__all__ = ["cifar_resnet", "resnet18"]

Shortcut = Callable[[int, int, int], nn.Module]  # (channels in, channels out, stride)
Norm = Callable[[int], nn.Module]  # (channels)


class Pad(nn.Module):
    """Option A: every second pixel, missing channels zero; no parameters."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, x: Tensor) -> Tensor:
        before = self.extra // 2
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, before, self.extra - before))


class Block(nn.Module):
    def __init__(
        self, channels: int, out: int, stride: int, norm: Norm, shortcut: Shortcut
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = norm(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = norm(out)
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def cifar_resnet(blocks: int) -> Callable[[tuple[int, ...], str], Body]:
    """Make the body of ResNet-(6 `blocks` + 2), as CRAFT's experiments use it.

    `norm = group` has one group and the convolutions start Kaiming-normal, as there.
    """

    def body(input_shape: tuple[int, ...], norm: str) -> Body:
        def one_group(channels: int) -> nn.Module:
            return norm_layer(norm, channels, groups=1)

        def pad(channels: int, out: int, stride: int) -> nn.Module:
            return Pad(out - channels, stride)

        stages = [(width, blocks) for width in (16, 32, 64)]
        return _body(_channels(input_shape), stages, one_group, pad)

    return body


def resnet18(input_shape: tuple[int, ...], norm: str) -> Body:
    def groups_of_16(channels: int) -> nn.Module:
        return norm_layer(norm, channels, groups=channels // 16)

    def project(channels: int, out: int, stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), groups_of_16(out))

    stages = [(width, 2) for width in (64, 128, 256, 512)]
    return _body(_channels(input_shape), stages, groups_of_16, project)


def _body(channels: int, stages: list[tuple[int, int]], norm: Norm, shortcut: Shortcut) -> Body:
    """Stem, stages of (width, blocks) of which all but the first halve the image, and the mean."""
    width = stages[0][0]
    layers = [nn.Conv2d(channels, width, 3, padding=1, bias=False), norm(width), nn.ReLU()]
    for index, (out, blocks) in enumerate(stages):
        for block in range(blocks):
            stride = 2 if index > 0 and block == 0 else 1
            layers.append(Block(width, out, stride, norm, shortcut))
            width = out
    return kaiming(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())), width


def _channels(input_shape: tuple[int, ...]) -> int:
    if len(input_shape) != 3:
        raise ModelError(
            f"a ResNet needs images of (channels, height, width), got {input_shape}",
            hint="take mlp",
        )
    return input_shape[0]

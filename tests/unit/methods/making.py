"""Small models, tasks and contributions for tests of methods."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from peer.evaluate import cross_entropy
from peer.examples import Examples
from peer.mixers.base import Head
from peer.models.describe import describe
from peer.models.split import SplitModel
from peer.options.methods import TrainOptions
from peer.seeding import forked
from peer.task import LocalTask
from protocol.ids import PeerId
from protocol.params import Params
from protocol.round import Contribution, Trained

CPU = torch.device("cpu")


class LinearProbe:
    """Batches of features for a model that is a scale `body` and a classifier; float64 inside."""

    head = Head("head.weight", "head.bias")

    def __init__(self, *batches: tuple[Tensor, Tensor]) -> None:
        self.batches = batches
        self.num_batches = len(batches)

    def targets(self, batch: int = 0) -> Tensor:
        return self.batches[batch][1]

    def features(self, params: Params, batch: int = 0) -> Tensor:
        return self.batches[batch][0].double() * params["body.scale"].double()

    def loss(self, params: Params, batch: int = 0) -> float:
        logits = self.features(params, batch) @ params["head.weight"].double().T
        logits = logits + params["head.bias"].double()
        return cross_entropy(logits, self.targets(batch)).mean().item()


def linear_point(seed: int, dtype: torch.dtype = torch.float64, classes: int = 4) -> Params:
    """Parameters for a LinearProbe with features of width 3."""
    chance = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance, dtype=torch.float64).to(dtype)

    return {
        "body.scale": draw(3),
        "head.weight": draw(classes, 3),
        "head.bias": draw(classes),
    }


def linear_probe(seed: int = 0, size: int = 8, classes: int = 4) -> LinearProbe:
    chance = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, 3, generator=chance, dtype=torch.float64)
    return LinearProbe((inputs, torch.randint(classes, (size,), generator=chance)))


def contribution(
    sender: str,
    params: Params,
    *,
    buffers: Params | None = None,
    extras: Params | None = None,
    num_examples: int = 1,
    freshness: float = 1.0,
    class_counts: Sequence[int] = (),
) -> Contribution:
    trained = Trained(
        params=params,
        buffers=buffers or {},
        extras=extras or {},
        num_examples=num_examples,
        num_steps=1,
        class_counts=tuple(class_counts),
    )
    return Contribution(
        sender=PeerId(sender),
        round_no=1,
        base=b"",
        degree=2,
        trained=trained,
        freshness=freshness,
    )


def small_model(
    norm: str = "none", seed: int = 0, dtype: torch.dtype = torch.float32
) -> SplitModel:
    """A convolution, BatchNorm with `norm = batch`, and a classifier of 3 classes."""
    with forked(seed):
        layers: list[nn.Module] = [nn.Conv2d(1, 4, 3)]
        if norm == "batch":
            layers.append(nn.BatchNorm2d(4))
        body = nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        net = nn.Sequential(OrderedDict(body=body, head=nn.Linear(16, 3)))
    return describe("small", net, (1, 6, 6), 3).to(CPU, dtype)


def small_task(
    model: SplitModel,
    *,
    size: int = 12,
    batch_size: int = 4,
    seed: int = 0,
    precision: Literal["fp32", "bf16"] = "fp32",
) -> LocalTask:
    """Three patterns under noise."""
    chance = torch.Generator().manual_seed(seed)
    dtype = next(iter(model.start.params.values())).dtype
    targets = torch.randint(3, (size,), generator=chance)
    patterns = torch.randn(3, 1, 6, 6, generator=torch.Generator().manual_seed(99))
    inputs = 0.3 * torch.randn(size, 1, 6, 6, generator=chance) + patterns[targets]
    options = TrainOptions(batch_size=batch_size, precision=precision)
    return LocalTask(model, Examples(inputs.to(dtype), targets), options)


def silent(done: int, planned: int) -> None:
    """A progress that nobody watches."""

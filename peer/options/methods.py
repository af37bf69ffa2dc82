"""The hyperparameters of each mixer, solver and aggregator, by the name that a person types.

The algorithms stand beside their slots (peer/mixers and so on) under the same names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from peer.options.aggregators import AGGREGATORS
from peer.options.entry import Entry, Need, NoOptions
from peer.options.fields import check, choice, flag, number, whole
from peer.options.solvers import SOLVERS, DescentOptions, FedConstOptions

__all__ = [
    "AGGREGATORS",
    "MIXERS",
    "SOLVERS",
    "DescentOptions",
    "Entry",
    "FedC2IOptions",
    "FedConstOptions",
    "MixOptions",
    "Need",
    "NoOptions",
    "TrainOptions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FedC2IOptions:
    gamma: float = number(5.0, "[0, inf)", "sharpness of the weights; 0 is the uniform mean")
    level: Literal["both", "client", "class"] = choice(
        "both", "both | client | class", "weigh whole models, rows of the classifier, or each"
    )
    absent: Literal["formula", "client"] = choice(
        "formula", "formula | client", "rows of classes not owned: own weights, or the client's"
    )
    include_self: bool = flag("true", "the own model is among those averaged and weighed")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixOptions:
    """What holds for every mixer."""

    buffers: Literal["average", "local"] = choice(
        "average", "average | local", "average BatchNorm's statistics, or keep its layers local"
    )
    probe_batches: int = whole(
        1, "[1, 1000000]", "training batches that influence is measured on, at most one pass"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What holds for every solver."""

    batch_size: int = whole(32, "[1, 1000000]", "examples in a step")
    precision: Literal["fp32", "bf16"] = choice("fp32", "fp32 | bf16", "of the training passes")

    def __post_init__(self) -> None:
        check(self)


MIXERS: Mapping[str, Entry] = {
    "fedavg": Entry(NoOptions, "mean over the neighbourhood, weighed by training samples"),
    "fedc2i": Entry(FedC2IOptions, "weigh each peer by how much the own loss grows without it"),
    "local": Entry(NoOptions, "keep the own result; nothing is sent"),
    "relay": Entry(NoOptions, "start from the relay's model; a local round without it"),
    "replicated": Entry(NoOptions, "one common model: the relay's, or each peer's own copy of it"),
}

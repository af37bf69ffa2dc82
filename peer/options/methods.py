"""The hyperparameters of each mixer, solver and aggregator, by the name that a person types.

The algorithms stand beside their slots (peer/mixers and so on) under the same names.
"""

from dataclasses import dataclass
from typing import Literal

from peer.options.aggregators import AGGREGATORS
from peer.options.entry import Entry, Need, NoOptions
from peer.options.fields import check, choice, flag, number, whole
from peer.options.mixers import MIXERS, FedC2IOptions
from peer.options.solvers import SOLVERS, DescentOptions, FedConstOptions, SgdOptions

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
    "ServeOptions",
    "SgdOptions",
    "TrainOptions",
]


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
    holdout: float = number(
        0.1, "[0, 0.5]", "share of the training split that validates where a shard has nothing else"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What holds for the model that a peer serves to its user, whatever made it."""

    never_worse: bool = flag("false", "serve the model that validates best, not just what came out")
    twin: bool = flag(
        "true", "never_worse also asks a model that trains alone: a second pass in each round"
    )

    def __post_init__(self) -> None:
        check(self)

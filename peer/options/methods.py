"""The hyperparameters of each mixer, solver and aggregator, by the name that a person types.

The algorithms stand beside their slots (peer/mixers and so on) under the same names.
"""

from dataclasses import dataclass
from typing import Literal

from peer.options.aggregators import AGGREGATORS
from peer.options.entry import Entry, Need, NoOptions
from peer.options.fields import check, choice, whole
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

    def __post_init__(self) -> None:
        check(self)

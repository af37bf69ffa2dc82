"""The hyperparameters of each solver, by the name that a person types.

The algorithms stand in peer/solvers under the same names. Defaults are those of the papers where a
paper has one; how SGD goes (`DescentOptions`) is the same for all, so that methods compare.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from peer.options.entry import Entry
from peer.options.fields import check, choice, flag, number, whole
from protocol.errors import ConfigError

__all__ = [
    "SOLVERS",
    "DescentOptions",
    "FedConstOptions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentOptions:
    lr: float = number(0.05, "(0, 1000000]", "step size")
    momentum: float = number(0.0, "[0, 1)", "share of the last step that is taken again")
    nesterov: bool = flag("false", "look ahead along the momentum")
    weight_decay: float = number(0.0, "[0, inf)", "joins the gradient before the momentum")
    epochs: int = whole(1, "[1, 100000]", "passes over the local data in each round")

    def __post_init__(self) -> None:
        check(self)
        if self.nesterov and self.momentum == 0.0:
            raise ConfigError("nesterov = true needs momentum > 0, got momentum = 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FedConstOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    mode: Literal["joint", "sequential"] = choice(
        "joint", "joint | sequential", "both constraints exactly, or one after the other as printed"
    )
    center_init: bool = flag("true", "centre the rows of the initial model, once")

    def __post_init__(self) -> None:
        check(self)


SOLVERS: Mapping[str, Entry] = {
    "fedconst": Entry(FedConstOptions, "SGD that moves rows only off their mean and start value"),
    "sgd": Entry(DescentOptions, "stochastic gradient descent"),
}

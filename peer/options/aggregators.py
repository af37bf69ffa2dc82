"""The hyperparameters of each aggregator, by the name that a person types.

The algorithms stand in peer/aggregators under the same names. Defaults are those of the papers
where a paper has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from peer.options.entry import Entry, Need, NoOptions
from peer.options.fields import Only, check, choice, number, whole

__all__ = [
    "AGGREGATORS",
    "AflOptions",
    "ConFigOptions",
    "CraftOptions",
    "FedAvgMOptions",
    "FedFVOptions",
    "QFedAvgOptions",
    "ScaffoldServerOptions",
]

_LR = "(0, 1000000]"  # of every step size


@dataclass(frozen=True, slots=True, kw_only=True)
class CraftOptions:
    groups: Literal["module", "tensor", "global"] = choice(
        "module", "module | tensor | global", "what is aligned on its own: layers, tensors, all"
    )
    tol: float = number(1e-6, "(0, 1)", "singular values below this share of the largest are zero")
    single: Literal["solve", "raw"] = choice(
        "solve", "solve | raw", "one usable update in a group: by the formula, or as it came"
    )
    length: Literal["paper", "projection", "mean-norm"] = choice(
        "paper", "paper | projection | mean-norm", "as solved, or scaled to the updates' lengths"
    )
    policy: Literal["lstsq", "minnorm", "skip"] = choice(
        "lstsq", "lstsq | minnorm | skip", "where the targets cannot all be met"
    )
    max_norm: float = number(
        10.0,
        "(0, 1000000]",
        "longest step of a group before lr",
        only=Only("length", "paper"),
    )
    lr: float = number(0.1, _LR, "step size; with length = paper every group moves by about it")
    schedule: Literal["constant", "inverse-sqrt", "step"] = choice(
        "constant", "constant | inverse-sqrt | step", "how lr falls over the rounds"
    )
    decay_rounds: int = whole(
        100,
        "[1, 1000000]",
        "inverse-sqrt: rounds until lr / sqrt(2); step: between two steps",
        only=Only("schedule", "inverse-sqrt | step"),
    )
    decay: float = number(
        0.1, "(0, 1]", "factor on lr at each step of schedule = step", only=Only("schedule", "step")
    )
    project: Literal["none", "fedconst"] = choice(
        "none", "none | fedconst", "keep the result where the peers' fedconst lets rows move"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvgMOptions:
    momentum: float = number(0.9, "[0, 1)", "share of the last velocity that is kept; 0 is fedavg")
    lr: float = number(1.0, _LR, "step size along the velocity")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AflOptions:
    lambda_lr: float = number(0.1, _LR, "how fast weights follow the losses")
    lr: float = number(1.0, _LR, "step size, in units of the peers' own")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class QFedAvgOptions:
    q: float = number(1.0, "[0, 1000]", "how much more large losses weigh; 0 is the uniform mean")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedFVOptions:
    alpha: float = number(0.1, "[0, 1]", "share of the peers, by loss, whose updates stay whole")
    tau: int = whole(1, "[0, 1000]", "rounds whose updates the step may not oppose; 0 is none")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConFigOptions:
    length: Literal["mean", "sum"] = choice(
        "mean", "mean | sum", "of the updates' projections; the paper's sum grows with the peers"
    )
    lr: float = number(1.0, _LR, "factor on the step")
    tol: float = number(1e-6, "(0, 1)", "singular values below this share of the largest are zero")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaffoldServerOptions:
    lr: float = number(1.0, _LR, "step size along the mean update")

    def __post_init__(self) -> None:
        check(self)


# Where peers start from their own mixes, a relay is given updates, start minus trained, and takes
# them as if they had started at its own model. What a peer says of its start holds only there.
_OUTLET = frozenset({Need.OUTLET})
_COMMON = _OUTLET | {Need.COMMON_START}
_BY_LOSS = _COMMON | {Need.START_LOSS}
_GIVES = frozenset({Need.AGGREGATE})

AGGREGATORS: Mapping[str, Entry] = {
    "none": Entry(NoOptions, "no model is common to all"),
    "afl": Entry(
        AflOptions,
        "weigh peers for the worst mixture of their losses",
        _BY_LOSS | {Need.FULL_PARTICIPATION},
        _GIVES,
    ),
    "config": Entry(ConFigOptions, "one direction at equal angles to all updates", _OUTLET, _GIVES),
    "craft": Entry(
        CraftOptions,
        "per layer, advance each peer by its share of the data",
        _OUTLET,
        _GIVES,
        when={("project", "fedconst"): _COMMON | {Need.CONSTRAINED_ROWS}},
    ),
    "fedavg": Entry(NoOptions, "mean, weighed by training samples", _OUTLET, _GIVES),
    "fedavgm": Entry(FedAvgMOptions, "the mean update with momentum", _OUTLET, _GIVES),
    "feddyn": Entry(
        NoOptions, "common half of FedDyn", _COMMON | {Need.DYNAMIC}, _GIVES | {Need.DRIFT}
    ),
    "fedfv": Entry(FedFVOptions, "mean of updates freed of their conflicts", _BY_LOSS, _GIVES),
    "fedlf": Entry(
        NoOptions,
        "per tensor, the shortest step that helps all and evens out losses",
        _BY_LOSS | {Need.LR},
        _GIVES,
    ),
    "fednova": Entry(NoOptions, "mean of updates per local step", _OUTLET, _GIVES),
    "qfedavg": Entry(
        QFedAvgOptions, "weigh peers by their loss to the q", _BY_LOSS | {Need.LR}, _GIVES
    ),
    "scaffold": Entry(
        ScaffoldServerOptions,
        "common half of SCAFFOLD",
        _COMMON | {Need.VARIATES},
        _GIVES | {Need.MEAN_VARIATE},
    ),
}

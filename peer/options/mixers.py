"""The hyperparameters of each mixer, by the name that a person types.

The algorithms stand in peer/mixers under the same names. Defaults are those of the papers where a
paper has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from peer.options.entry import Entry, Need, NoOptions
from peer.options.fields import Only, check, choice, flag, number

__all__ = ["MIXERS", "FedC2IOptions", "FedCalmOptions", "FedICOptions", "FedRepOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FedC2IOptions:
    gamma: float = number(5.0, "[0, 1000000]", "sharpness of the weights; 0 is the uniform mean")
    level: Literal["both", "client", "class"] = choice(
        "both", "both | client | class", "weigh whole models, rows of the classifier, or each"
    )
    absent: Literal["formula", "client"] = choice(
        "formula",
        "formula | client",
        "rows of classes not owned: own weights, or the client's",
        only=Only("level", "both | class"),
    )
    include_self: bool = flag("true", "the own model is among those averaged and weighed")
    memory: float = number(
        0.0,
        "[0, 1)",
        "share of the losses of earlier rounds in those weighed",
        only=Only("gamma", "(0, inf)"),
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedCalmOptions:
    margin: float = number(
        0.01,
        "[0, 1]",
        "how far the step shall lead along each peer's own",
        only=Only("cap", "(0, inf)"),
    )
    cap: float = number(
        1.0, "[0, 1000000]", "largest multiplier of a peer; 0 is the mean of PCGrad"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedICOptions:
    cut: float = number(0.3, "[0, 2]", "cosine distance up to which prototypes are one cluster")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedRepOptions:
    weights: Literal["uniform", "samples"] = choice(
        "uniform", "uniform | samples", "what bodies weigh: the same, or training samples"
    )

    def __post_init__(self) -> None:
        check(self)


_PROTOTYPES, _TARGETS = frozenset({Need.PROTOTYPES}), frozenset({Need.TARGETS})
_AGGREGATE, _OUTLET = frozenset({Need.AGGREGATE}), frozenset({Need.OUTLET})
_COMMON_START = _OUTLET | {Need.COMMON_START}

MIXERS: Mapping[str, Entry] = {
    "fedavg": Entry(
        NoOptions, "mean over the neighbourhood, weighed by training samples", gives=_OUTLET
    ),
    "fedc2i": Entry(
        FedC2IOptions,
        "weigh each peer by how much the own loss grows without it",
        needs=frozenset({Need.OPEN_DATA}),
        gives=_OUTLET,
    ),
    "fedcalm": Entry(
        FedCalmOptions, "bodies move where no peer's update is opposed; classifiers never leave"
    ),
    "fedic": Entry(
        FedICOptions,
        "FedIC (reconstruction): cluster prototypes by class, mix classifiers within clusters",
        needs=_PROTOTYPES | {Need.SPREADS},
        gives=_TARGETS,
    ),
    "fedproto": Entry(
        NoOptions,
        "mean prototypes of each class are all that is exchanged",
        needs=_PROTOTYPES,
        gives=_TARGETS,
    ),
    "fedrep": Entry(FedRepOptions, "mean of the bodies; classifiers never leave", gives=_OUTLET),
    "fedrod": Entry(
        NoOptions, "mean of body and generic classifier, weighed by training samples", gives=_OUTLET
    ),
    "local": Entry(NoOptions, "keep the own result; nothing is sent"),
    "metropolis": Entry(NoOptions, "mean by degrees, which any graph keeps in balance"),
    "relay": Entry(
        NoOptions,
        "start from the relay's model; a local round without it",
        _AGGREGATE,
        _COMMON_START,
    ),
    "replicated": Entry(
        NoOptions,
        "one common model: the relay's, or each peer's own copy of it",
        _AGGREGATE | {Need.FULL_MESH},
        _COMMON_START,
    ),
}

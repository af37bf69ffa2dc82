"""The hyperparameters of each solver, by the name that a person types.

The algorithms stand in peer/solvers under the same names. Defaults are those of the papers where a
paper has one; how SGD goes (`DescentOptions`) is the same for all, so that methods compare.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from peer.options.entry import Entry, Need
from peer.options.fields import Only, check, choice, flag, number, whole
from protocol.errors import ConfigError

__all__ = [
    "SOLVERS",
    "DescentOptions",
    "DittoOptions",
    "FedAlignOptions",
    "FedConstOptions",
    "FedDynOptions",
    "FedProxOptions",
    "FedRepSolverOptions",
    "FedSamOptions",
    "MoonOptions",
    "PrivacyOptions",
    "PrototypeOptions",
    "SgdOptions",
]

MIN_NOISE = 1e-6  # squares of much less are zero
_STRENGTH = "[0, 1000000]"  # of a term in the loss
_CLIP = "(0, 1000000]"
_WITH_NOISE = Only("dp_noise", "(0, inf)")
_WITH_MU = Only("mu", "(0, inf)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentOptions:
    lr: float = number(0.05, "(0, 1000000]", "step size")
    momentum: float = number(0.0, "[0, 1)", "share of the last step that is taken again")
    nesterov: bool = flag("false", "look ahead along the momentum")
    weight_decay: float = number(0.0, "[0, 1000000]", "joins the gradient before the momentum")
    epochs: int = whole(1, "[1, 100000]", "passes over the local data in each round")

    def __post_init__(self) -> None:
        check(self)
        if self.nesterov and self.momentum == 0.0:
            raise ConfigError("nesterov = true needs momentum > 0, got momentum = 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyOptions:
    dp_noise: float = number(
        0.0, "[0, 1000000]", "deviation of the noise on a step's sum, in clips; 0 is no privacy"
    )
    dp_clip: float = number(1.0, _CLIP, "longest gradient of one example", only=_WITH_NOISE)
    dp_delta: float = number(1e-5, "(0, 1)", "chance that epsilon is not kept", only=_WITH_NOISE)
    dp_chance: Literal["secret", "seeded"] = choice(
        "secret",
        "secret | seeded",
        "noise that nobody can repeat, or the seed's: for studies",
        only=_WITH_NOISE,
    )

    def __post_init__(self) -> None:
        check(self)
        if 0.0 < self.dp_noise < MIN_NOISE:
            raise ConfigError(
                f"dp_noise = {self.dp_noise} cannot be used: it hides nothing, and no accountant "
                "can count with it",
                hint=f"take {MIN_NOISE} or more, where 1 is usual; or 0 for no privacy",
            )

    @property
    def is_private(self) -> bool:
        return self.dp_noise > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SgdOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    privacy: PrivacyOptions = field(default_factory=PrivacyOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class DittoOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    lam: float = number(
        1.0, _STRENGTH, "lambda, the pull of the personal model to the common one; 0 is local"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAlignOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    mu: float = number(0.45, _STRENGTH, "share of the loss that aligns the thin stage; 0 is sgd")
    width: float = number(
        0.25, "(0, 1)", "share of the channels of the last stage that it keeps", only=_WITH_MU
    )
    clip: float = number(10.0, _CLIP, "longest gradient")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedConstOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    privacy: PrivacyOptions = field(default_factory=PrivacyOptions)
    mode: Literal["joint", "sequential"] = choice(
        "joint", "joint | sequential", "both constraints exactly, or one after the other as printed"
    )
    reference: Literal["start", "relay"] = choice(
        "start",
        "start | relay",
        "whose rows no step goes along: the start's, or the relay's model's",
    )
    center_init: bool = flag("true", "centre the rows of the initial model, once")
    optimiser: Literal["sgd", "adam"] = choice(
        "sgd", "sgd | adam", "the step that is projected; adam takes no momentum"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.optimiser == "adam" and self.descent.momentum > 0.0:
            raise ConfigError(
                f"momentum = {self.descent.momentum} has no meaning with optimiser = adam",
                hint="leave momentum out: adam has its own",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FedDynOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    alpha: float = number(0.01, "(0, 1000000]", "strength of the dynamic regulariser")
    clip: float = number(10.0, _CLIP, "longest gradient, the regulariser's included")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProxOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    privacy: PrivacyOptions = field(default_factory=PrivacyOptions)
    mu: float = number(0.01, _STRENGTH, "strength of the pull to the start; 0 is sgd")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedRepSolverOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    head_epochs: int = whole(
        10, "[1, 100000]", "passes that train the classifier alone, before those of the body"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedSamOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    rho: float = number(0.1, _STRENGTH, "how far uphill the gradient is taken; 0 is sgd")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    mu: float = number(1.0, _STRENGTH, "weight of the contrast; 0 is sgd")
    temperature: float = number(
        0.5, "(0, 1000000]", "of the contrast; the lower, the sharper", only=_WITH_MU
    )
    width: int = whole(256, "[1, 100000]", "of the projection that features are compared in")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeOptions:
    descent: DescentOptions = field(default_factory=DescentOptions)
    pull: float = number(1.0, _STRENGTH, "weight of the pull of features to prototypes; 0 is sgd")

    def __post_init__(self) -> None:
        check(self)


# Noise on the steps hides the data only where nothing else tells of them.
_PRIVATE = {"dp_noise": frozenset({Need.OPEN_DATA, Need.START_LOSS})}

SOLVERS: Mapping[str, Entry] = {
    "ditto": Entry(
        DittoOptions,
        "SGD on the common model, and a personal one that is pulled to it",
        frozenset({Need.COMMON_START}),
    ),
    "fedalign": Entry(FedAlignOptions, "SGD whose last stage also works when it is thin"),
    "fedconst": Entry(
        FedConstOptions,
        "SGD that moves rows only off their mean and start value",
        gives=frozenset({Need.CONSTRAINED_ROWS}),
        bars=_PRIVATE,
        when={("reference", "relay"): frozenset({Need.RELAY_MODEL, Need.OUTLET, Need.AGGREGATE})},
    ),
    "feddyn": Entry(
        FedDynOptions,
        "local half of FedDyn",
        frozenset({Need.COMMON_START, Need.DRIFT}),
        gives=frozenset({Need.DYNAMIC}),
    ),
    "fedic": Entry(
        PrototypeOptions,
        "local half of FedIC (reconstruction): SGD with features pulled to the own cluster's",
        frozenset({Need.TARGETS}),
        gives=frozenset({Need.PROTOTYPES, Need.SPREADS}),
    ),
    "fedproto": Entry(
        PrototypeOptions,
        "SGD with features pulled to the prototype of their class",
        frozenset({Need.TARGETS}),
        gives=frozenset({Need.PROTOTYPES}),
    ),
    "fedprox": Entry(FedProxOptions, "SGD with a pull to the start", bars=_PRIVATE),
    "fedrep": Entry(FedRepSolverOptions, "SGD on the classifier alone, then on the body alone"),
    "fedrod": Entry(
        DescentOptions, "SGD on a generic classifier, and on a personal one on top of it"
    ),
    "fedsam": Entry(FedSamOptions, "SGD along gradients from a step uphill: flat minima"),
    "moon": Entry(MoonOptions, "SGD that keeps features near those of the start"),
    "scaffold": Entry(
        DescentOptions,
        "local half of SCAFFOLD",
        frozenset({Need.COMMON_START, Need.MEAN_VARIATE}),
        gives=frozenset({Need.VARIATES}),
    ),
    "sgd": Entry(SgdOptions, "stochastic gradient descent", bars=_PRIVATE),
}

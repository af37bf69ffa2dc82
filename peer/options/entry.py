"""What a registry knows of a method without running it: options, one line, and what it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from peer.options.fields import Options, Value

__all__ = ["Entry", "Need", "NoOptions"]


class Need(Enum):
    """What a method asks of those who run it, beyond its slot."""

    START_LOSS = "the loss of the start point over all local training data"  # costs a pass
    OPEN_DATA = "a look at the training data that no noise hides"
    COMMON_START = "one start point for the training of all peers"
    AGGREGATE = "an aggregator, which makes one model of all results"
    OUTLET = "a mixer that takes a relay's model"
    RELAY_MODEL = "the newest model of a relay"
    FULL_MESH = "the results of all peers at every peer"
    CONSTRAINED_ROWS = "training that moves rows only where fedconst leaves them free"
    FULL_PARTICIPATION = "every peer in every round"  # without, it runs outside its definition
    LR = "the step size of the peers' solver"
    VARIATES = "control variates from the peers"
    MEAN_VARIATE = "the mean of the peers' control variates"
    DYNAMIC = "the local half of FedDyn"
    DRIFT = "the common half of FedDyn"
    PROTOTYPES = "the mean features of each class of every peer"
    SPREADS = "how far features lie from the mean of their class, of every peer"
    TARGETS = "features for each class that training pulls to"


@dataclass(frozen=True, slots=True)
class Entry:
    """One method of a slot, as the registry knows it.

    Attributes:
        gives: what other slots may need; a need that some method gives must be met by one chosen.
        when: further needs, which one value of an option brings.
        bars: by option, needs of other parts that are not met while it is above zero.
        factory: of an installed method, "package.module:Class" of its algorithm; imported by a
            trainer alone, and called with the options. Kinfolk's own stand in peer/methods.py.
        package: that an installed method comes from, with its version; filled in when it is found.
    """

    options: type[Options]
    summary: str
    needs: frozenset[Need] = frozenset()
    gives: frozenset[Need] = frozenset()
    when: Mapping[tuple[str, Value], frozenset[Need]] = field(default_factory=dict)
    bars: Mapping[str, frozenset[Need]] = field(default_factory=dict)
    factory: str = ""
    package: str = ""


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Nothing to choose."""

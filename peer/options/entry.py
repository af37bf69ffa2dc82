"""What a registry knows of a method without running it: options, one line, and what it needs."""

from dataclasses import dataclass
from enum import Enum

from peer.options.fields import Options

__all__ = ["Entry", "Need", "NoOptions"]


class Need(Enum):
    """What a method asks of those who run it, beyond its slot."""

    START_LOSS = "the loss of the start point over all local training data"  # costs a pass
    COMMON_START = "one start point for all whose results it combines"
    FULL_PARTICIPATION = "every peer in every round"  # without, it runs outside its definition
    LR = "the step size of the peers' solver"
    VARIATES = "control variates from the peers, which solver = scaffold sends"
    MEAN_VARIATE = "the mean of the peers' control variates, which aggregator = scaffold sends"
    DYNAMIC = "the local half of the method, which is solver = feddyn"
    DRIFT = "the common half of the method, which is aggregator = feddyn"
    PROTOTYPES = "the mean features of each class of every peer"
    SPREADS = "how far features lie from the mean of their class, of every peer"
    TARGETS = "features for each class that training pulls to"


@dataclass(frozen=True, slots=True)
class Entry:
    """One method of a slot, as the registry knows it.

    Attributes:
        gives: what other slots may need; a need that some method gives must be met by one chosen.
    """

    options: type[Options]
    summary: str
    needs: frozenset[Need] = frozenset()
    gives: frozenset[Need] = frozenset()


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Nothing to choose."""

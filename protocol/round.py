"""The nouns of one round, shared by peers and relays.

Params are what optimisers move and what every geometry (norms, dot products, projections) is made
of. Buffers are running statistics: averaged or kept, never part of any geometry. Extras are what a
method sends beside them, e.g. SCAFFOLD's control variate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.ids import PeerId
from protocol.params import NOTHING, Params, sub

__all__ = ["Aggregated", "Contribution", "Mixed", "Start", "Trained", "descent"]


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Where a peer's local training begins."""

    params: Params
    buffers: Params = field(default_factory=lambda: NOTHING)
    extras: Params = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trained:
    """What local training gave, and the evidence needed to weigh it."""

    params: Params
    buffers: Params = field(default_factory=lambda: NOTHING)
    extras: Params = field(default_factory=lambda: NOTHING)
    num_examples: int  # in the local training split, >= 1
    num_steps: int  # optimiser steps since the start point, >= 1
    nova_a: float = 0.0  # FedNova's accumulation of local steps a_i; num_steps for plain SGD
    lr: float = 0.0  # of the local steps, > 0 where the solver has one
    train_loss: float = 0.0  # mean over the steps, nats; not finite after a divergence
    start_loss: float = 0.0  # of the start point over all local training data, nats
    class_counts: tuple[int, ...] = ()  # training samples of each class
    # What the peer serves, where not `params`: tensors of params and buffers; never sent.
    personal: Params | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Contribution:
    """A peer's result of one round, as its neighbours or the relay see it."""

    sender: PeerId
    round_no: int  # the sender's, >= 0
    base: bytes  # digest of the start point that it was trained from; empty for round 0
    memory: bytes = b""  # digest of the aggregator's memory there, where every peer has one
    degree: int  # the sender's number of neighbours, >= 0
    trained: Trained
    freshness: float = 1.0  # factor on the raw mixing weight: 0.5^(age/half_life), in (0, 1]


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """A mixer's start point and the evidence of how it came about: plain numbers for the ledger."""

    start: Start
    # lambda: what each contribution weighs, the own one included; >= 0, sums to 1
    client_weight: Mapping[PeerId, float] = field(default_factory=dict)
    # Lambda: the same for each row of the classifier; sums to 1 over the peers
    class_weight: Mapping[PeerId, tuple[float, ...]] = field(default_factory=dict)
    # own mean loss without that peer, nats
    client_loss: Mapping[PeerId, float] = field(default_factory=dict)
    notes: Mapping[str, float] = field(default_factory=dict)  # e.g. classes absent from the batch
    # of an aggregator: by group of layers, then name
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unused: Mapping[PeerId, str] = field(default_factory=dict)  # contributions left out, and why


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated:
    """An aggregator's start point and the evidence of how it came about: plain numbers.

    Groups are those of layers, where a method works by them: CRAFT's rank, residual and so on.
    """

    start: Start
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by group, then name
    notes: Mapping[str, float] = field(default_factory=dict)  # of the whole round


def descent(start: Start, contribution: Contribution) -> Params:
    """Start minus trained: a direction to be subtracted. The one place that fixes the sign."""
    return sub(start.params, contribution.trained.params)

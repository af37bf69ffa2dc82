"""FedProto, the mixing half: peers exchange a prototype of each class, and nothing else.

Tan et al., 2022, arXiv 2105.00243. The common prototype of a class is the mean over the peers that
have examples of it, each counting the same; a stale one counts less. Models are never averaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from peer.mixers.base import Head, Probe
from peer.mixers.neighbourhood import closed
from peer.options.entry import NoOptions
from peer.prototypes import Prototypes
from protocol.params import NO_STATE, NOTHING, State
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["FedProto"]


@dataclass(frozen=True, slots=True)
class FedProto:
    options: NoOptions = field(default_factory=NoOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        sent = Prototypes.read(trained.extras).extras()
        return replace(trained, params=NOTHING, buffers=NOTHING, extras=sent, personal=None)

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        everyone = closed(own, others)
        sent = [Prototypes.read(c.trained.extras) for c in everyone]
        fresh = torch.tensor([c.freshness for c in everyone], dtype=torch.float64)
        owned = torch.stack([p.counts > 0 for p in sent])  # (peers, classes)
        common = Prototypes.averaged(sent, owned * fresh.to(owned.device).unsqueeze(1))
        start = Start(own.trained.params, extras=common.extras())
        notes = {"classes_without_prototype": float((common.counts == 0).sum())}
        return Mixed(start, client_weight={own.sender: 1.0}, notes=notes), state

"""FedC2I: weigh each peer by how much this peer's loss grows when it is left out.

Tan et al., 2024, arXiv 2410.03315. The body is mixed with one weight per peer, each row of the
classifier with one per peer and class. `gamma = 0` is the uniform mean. `memory` weighs by a
running average over rounds, which the paper does not have.
Letters: P points (models), C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.mixers.base import Head, Probe
from peer.mixers.influence import class_losses, client_losses, scores_of, weights_from_scores
from peer.mixers.memory import remembered
from peer.mixers.neighbourhood import closed
from peer.mixers.rows import mix_rows
from peer.options.mixers import FedC2IOptions
from protocol.ids import PeerId
from protocol.params import NO_STATE, NOTHING, Params, State, combine
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["FedC2I"]

_CLIENT, _CLASS = "client_scores", "class_scores"  # of the state


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """Whose influence is asked, of what, in one round."""

    everyone: Sequence[Contribution]  # sorted by sender, at least two
    own: Contribution
    probe: Probe
    known: State  # scores of earlier rounds

    @property
    def senders(self) -> list[PeerId]:
        return [contribution.sender for contribution in self.everyone]

    @property
    def points(self) -> list[Params]:
        return [contribution.trained.params for contribution in self.everyone]

    @property
    def freshness(self) -> Tensor:
        return torch.tensor([c.freshness for c in self.everyone], dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class FedC2I:
    """Mix by influence.

    `level = client` weighs whole models, classifier included; `class` weighs rows of the classifier
    and takes the uniform mean of the rest. `absent = client` gives the client's weights to rows of
    classes that the peer has no training example of. Without `include_self` the start is made of
    the neighbours alone; the own model still makes the features and asks the questions.
    """

    options: FedC2IOptions = field(default_factory=FedC2IOptions)

    def init(self, start: Start) -> State:
        return NO_STATE

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return trained

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        asked = closed(own, others) if self.options.include_self or not others else list(others)
        if len(asked) == 1:
            alone = asked[0]
            return Mixed(Start(alone.trained.params), client_weight={alone.sender: 1.0}), state

        question = _Question(asked, own, probe, state)
        by_client, client, client_scores = self._by_client(question)
        by_class, rows, class_scores = self._by_class(question, by_client)
        senders, points = question.senders, question.points
        params = combine(points, by_client.tolist())
        heads = {name: mix_rows(points, name, by_class) for name in probe.head.names}
        mixed = Mixed(
            Start({**params, **heads}),
            client_weight=dict(zip(senders, by_client.tolist(), strict=True)),
            class_weight=dict(zip(senders, map(tuple, by_class.tolist()), strict=True)),
            client_loss=dict(zip(senders, client.tolist(), strict=False)),
            notes={
                "absent_classes": float(by_class.shape[1] - _num_classes_seen(probe)),
                "losses_not_finite": float((~torch.cat([client, rows.flatten()]).isfinite()).sum()),
            },
        )
        if self.options.memory == 0.0:
            return mixed, state
        return mixed, {_CLIENT: client_scores, _CLASS: class_scores}

    def _by_client(self, asked: _Question) -> tuple[Tensor, Tensor, Params]:
        """Weights of the points (P,); the losses behind them, (P,) or none; what to remember."""
        fresh = asked.freshness
        if self.options.level == "class":
            return fresh / fresh.sum(), fresh.new_empty(0), NOTHING
        names = asked.probe.head.names
        bodies = [{n: t for n, t in point.items() if n not in names} for point in asked.points]
        classifier = {name: asked.own.trained.params[name] for name in names}
        losses = client_losses(bodies, classifier, asked.probe)
        weights, scores = self._weights(asked, losses, _CLIENT)
        return weights, losses, scores

    def _by_class(self, asked: _Question, by_client: Tensor) -> tuple[Tensor, Tensor, Params]:
        """Weights of the rows (P, C); the losses behind them, (P, C) or none; what to remember."""
        own = asked.own.trained
        whole = by_client.unsqueeze(1).expand(-1, len(own.params[asked.probe.head.weight]))
        if self.options.level == "client":
            return whole, by_client.new_empty(0), NOTHING
        losses = class_losses(asked.points, own.params, asked.probe)
        weights, scores = self._weights(asked, losses, _CLASS)
        if self.options.absent == "client" and own.class_counts:
            owned = torch.tensor(own.class_counts) > 0  # (C,)
            weights = torch.where(owned, weights, whole)
        return weights, losses, scores

    def _weights(self, asked: _Question, losses: Tensor, key: str) -> tuple[Tensor, Params]:
        """Weights that follow from losses, and the scores to remember."""
        scores, known = scores_of(losses), asked.known.get(key, NOTHING)
        if self.options.memory > 0.0:
            scores, known = remembered(known, asked.senders, scores, self.options.memory)
        return weights_from_scores(scores, self.options.gamma, asked.freshness), known


def _num_classes_seen(probe: Probe) -> int:
    batches = [probe.targets(batch).tolist() for batch in range(probe.num_batches)]
    return len(set().union(*batches))

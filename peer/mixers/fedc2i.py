"""FedC2I: weigh each peer by how much this peer's loss grows when it is left out.

Tan et al., 2024, arXiv 2410.03315. The body is mixed with one weight per peer, each row of the
classifier with one per peer and class. `gamma = 0` is the uniform mean.
Letters: P points (models), C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peer.mixers.base import Head, Probe
from peer.mixers.influence import class_losses, client_losses, weights_from_losses
from peer.options.methods import FedC2IOptions
from protocol.params import NO_STATE, Params, State, combine
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["FedC2I"]


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
        asked = [own, *others] if self.options.include_self or not others else others
        everyone = sorted(asked, key=lambda contribution: contribution.sender)
        senders = [contribution.sender for contribution in everyone]
        points = [contribution.trained.params for contribution in everyone]
        if len(points) == 1:
            return Mixed(Start(points[0]), client_weight={senders[0]: 1.0}), state

        freshness = torch.tensor([c.freshness for c in everyone], dtype=torch.float64)
        by_client, client = self._by_client(points, freshness, own, probe)
        by_class, rows = self._by_class(points, freshness, own, probe, by_client)
        params = combine(points, by_client.tolist())
        heads = {name: _mix_rows(points, name, by_class) for name in probe.head.names}
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
        return mixed, state

    def _by_client(
        self, points: Sequence[Params], freshness: Tensor, own: Contribution, probe: Probe
    ) -> tuple[Tensor, Tensor]:
        """Weights of the points (P,), and the losses behind them: (P,), or none asked for."""
        if self.options.level == "class":
            return freshness / freshness.sum(), freshness.new_empty(0)
        names = probe.head.names
        bodies = [{n: t for n, t in point.items() if n not in names} for point in points]
        classifier = {name: own.trained.params[name] for name in names}
        losses = client_losses(bodies, classifier, probe)
        return weights_from_losses(losses, self.options.gamma, freshness), losses

    def _by_class(
        self,
        points: Sequence[Params],
        freshness: Tensor,
        own: Contribution,
        probe: Probe,
        by_client: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Weights of the rows (P, C), and the losses behind them: (P, C), or none asked for."""
        num_classes = len(own.trained.params[probe.head.weight])
        whole = by_client.unsqueeze(1).expand(-1, num_classes)
        if self.options.level == "client":
            return whole, freshness.new_empty(0)
        losses = class_losses(points, own.trained.params, probe)
        weights = weights_from_losses(losses, self.options.gamma, freshness)
        if self.options.absent == "client" and own.trained.class_counts:
            owned = torch.tensor(own.trained.class_counts) > 0  # (C,)
            weights = torch.where(owned, weights, whole)
        return weights, losses


def _mix_rows(points: Sequence[Params], name: str, weights: Tensor) -> Tensor:
    """Sum of the points' tensors of that name, each row with its own weight of (P, C)."""
    stacked = torch.stack([point[name].double() for point in points])  # (P, C, ...)
    shaped = weights.to(stacked.device).reshape(*weights.shape, *[1] * (stacked.ndim - 2))
    return (shaped * stacked).sum(dim=0).to(points[0][name].dtype)


def _num_classes_seen(probe: Probe) -> int:
    batches = [probe.targets(batch).tolist() for batch in range(probe.num_batches)]
    return len(set().union(*batches))

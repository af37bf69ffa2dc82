"""How much each peer helps this one: losses without it, and the weights that follow from them.

FedC2I, Tan et al., 2024, arXiv 2410.03315. Letters: P points (models), B batch, C classes, D width
of the features. All results are float64.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from peer.mixers.base import Probe
from protocol.params import Params, leave_one_out, total

__all__ = [
    "class_losses",
    "client_losses",
    "row_losses",
    "scores_of",
    "weights_from_losses",
    "weights_from_scores",
]

_FLOOR_NATS = 1e-12  # a loss below it weighs as one at it


def client_losses(points: Sequence[Params], classifier: Params, probe: Probe) -> Tensor:
    """Loss of the mean of the other points under the peer's own classifier: (P,), nats.

    Args:
        points: bodies (without the classifier), sorted by sender, at least two.
        classifier: the peer's own.
        probe: its batches; their losses are averaged by example.
    """
    sums = total(points)
    sizes = [len(probe.targets(batch)) for batch in range(probe.num_batches)]
    losses = []
    for point in points:
        without = {**leave_one_out(sums, point, len(points)), **classifier}
        each = [probe.loss(without, batch) * size for batch, size in enumerate(sizes)]
        losses.append(sum(each) / sum(sizes))
    return torch.tensor(losses, dtype=torch.float64)


def class_losses(points: Sequence[Params], own: Params, probe: Probe) -> Tensor:
    """Loss with one row of the own classifier replaced by the mean of the others': (P, C), nats.

    Args:
        points: models or their classifiers, sorted by sender, at least two.
        own: the peer's own model, which makes the features.
        probe: its batches; their losses are averaged by example.
    """
    sums, examples = torch.zeros((), dtype=torch.float64), 0
    for batch in range(probe.num_batches):
        targets = probe.targets(batch)
        features = probe.features(own, batch).double()  # (B, D)
        logits = torch.stack([_scores(features, point, probe) for point in points])  # (P, B, C)
        losses = row_losses(logits, _scores(features, own, probe), targets)
        sums = sums + losses.cpu() * len(targets)
        examples += len(targets)
    return sums / examples


def _scores(features: Tensor, point: Params, probe: Probe) -> Tensor:
    scores = features @ point[probe.head.weight].double().T
    return scores if probe.head.bias is None else scores + point[probe.head.bias].double()


def row_losses(logits: Tensor, own: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with one own logit replaced by the mean of the other points': (P, C), nats.

    Logits are linear in the classifier, so one feature pass serves all points and classes. The
    loss is log(1 + exp(margin)) with the label's own logit taken out first: nothing cancels when
    the model is nearly sure.

    Args:
        logits: of every point on the peer's own features, (P, B, C) float64, P >= 2.
        own: the peer's own, (B, C) float64.
        targets: (B,) int64.
    """
    tried = (logits.sum(dim=0) - logits) / (len(logits) - 1)  # (P, B, C)
    label = own.gather(1, targets.unsqueeze(1))  # (B, 1)
    is_label = targets.unsqueeze(1) == torch.arange(own.shape[1], device=own.device)  # (B, C)
    rivals = _log_sum_exp_without_each(own.masked_fill(is_label, -torch.inf))  # (B, C)
    margin = torch.where(is_label, rivals - tried, torch.logaddexp(rivals, tried) - label)
    return torch.logaddexp(margin, margin.new_zeros(())).mean(dim=1)


def _log_sum_exp_without_each(logits: Tensor) -> Tensor:
    """Log-sum-exp over the other columns, (B, C); by prefix and suffix, so that nothing cancels."""
    edge = logits.new_full((len(logits), 1), -torch.inf)
    before = torch.cat([edge, logits.logcumsumexp(dim=1)[:, :-1]], dim=1)
    after = torch.cat([edge, logits.flip(1).logcumsumexp(dim=1)[:, :-1]], dim=1).flip(1)
    return torch.logaddexp(before, after)


def weights_from_losses(losses: Tensor, gamma: float, freshness: Tensor) -> Tensor:
    """`freshness * losses^gamma`, normalised over the points: the shape of `losses`.

    Args:
        losses: (P,) or (P, C), nats.
        gamma: sharpness, >= 0; 0 leaves the freshness alone.
        freshness: (P,), in (0, 1].
    """
    return weights_from_scores(scores_of(losses), gamma, freshness)


def scores_of(losses: Tensor) -> Tensor:
    """Logarithms of losses, so that no power of them overflows or vanishes.

    A loss that is not finite counts as the largest finite one of its column; where none is finite
    all count the same.
    """
    finite = losses.isfinite()
    largest = losses.where(finite, -torch.inf).amax(dim=0, keepdim=True)
    known = losses.where(finite, largest.where(largest.isfinite(), 1.0))
    return known.clamp_min(_FLOOR_NATS).log()


def weights_from_scores(scores: Tensor, gamma: float, freshness: Tensor) -> Tensor:
    """As `weights_from_losses`, of the logarithms of losses."""
    age = freshness.log().reshape(-1, *[1] * (scores.ndim - 1))
    return torch.softmax(gamma * scores + age, dim=0)

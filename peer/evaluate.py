"""How good a model is on a split: accuracy and mean loss, over all and for each class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from peer.examples import Examples
from peer.models.split import Mode, SplitModel
from protocol.params import Params

__all__ = ["Outcomes", "Score", "cross_entropy", "evaluate", "outcomes"]

_BATCH_SIZE = 256  # bounds the memory of a pass without gradients


@dataclass(frozen=True, slots=True)
class Score:
    accuracy: float  # in [0, 1]
    loss: float  # mean cross-entropy in nats; not finite where the model's output is not
    num_examples: int  # >= 1
    class_accuracy: tuple[float | None, ...]  # None where the split has no example of the class


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What a model makes of each of N examples, in order."""

    losses: Tensor  # (N,) float64 cross-entropy, nats; not finite where the model's output is not
    correct: Tensor  # (N,) bool; false where the output is not finite


def outcomes(model: SplitModel, params: Params, buffers: Params, examples: Examples) -> Outcomes:
    """Ask the model about each example, dropout off and with running statistics.

    Args:
        model: whose numbers `params` and `buffers` are.
        params: the point that is asked.
        buffers: of that point.
        examples: at least one.

    Raises:
        LayoutError: `params` or `buffers` are not those of `model`.
    """
    losses: list[Tensor] = []
    correct: list[Tensor] = []
    with torch.no_grad():
        for inputs, targets in examples.in_order(_BATCH_SIZE):
            logits, _ = model.logits(params, buffers, inputs, Mode.EVALUATE)
            loss = cross_entropy(logits, targets)  # (batch,)
            losses.append(loss)
            correct.append((logits.argmax(dim=1) == targets) & loss.isfinite())
    return Outcomes(torch.cat(losses), torch.cat(correct))


def evaluate(
    model: SplitModel, params: Params, buffers: Params, examples: Examples
) -> Score | None:
    """Score the model, dropout off and with running statistics; None for an empty split.

    An example with an output that is not finite counts as wrong.

    Raises:
        LayoutError: `params` or `buffers` are not those of `model`.
    """
    if len(examples) == 0:
        return None
    found = outcomes(model, params, buffers, examples)
    right = examples.targets[found.correct]
    hits = torch.bincount(right, minlength=model.num_classes).tolist()
    counts = torch.bincount(examples.targets, minlength=model.num_classes).tolist()
    return Score(
        accuracy=sum(hits) / len(examples),
        loss=found.losses.mean().item(),
        num_examples=len(examples),
        class_accuracy=tuple(h / n if n else None for h, n in zip(hits, counts, strict=True)),
    )


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each example in nats: (batch,) float64.

    Exact where the usual form cancels: for an example of which the model is nearly sure.
    """
    margins = logits.double()
    margins = margins - margins.gather(1, targets.unsqueeze(1))
    margins = margins.scatter(1, targets.unsqueeze(1), -torch.inf)
    return torch.logaddexp(margins.logsumexp(dim=1), margins.new_zeros(()))

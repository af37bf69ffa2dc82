"""Questions to a few fixed batches of a peer's training data, by which mixers measure influence."""

from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from peer.evaluate import cross_entropy
from peer.mixers.base import Head
from peer.models.split import Mode, SplitModel
from peer.solvers.base import Batch
from peer.task import LocalTask
from protocol.params import Params

__all__ = ["LocalProbe"]


@dataclass(frozen=True, slots=True, eq=False)
class LocalProbe:
    """The `Probe` of the mixer slot.

    Always in the precision of the parameters: differences between neighbours fade like 1/M, and
    bfloat16 would drown them.
    """

    model: SplitModel
    buffers: Params  # the peer's own; BatchNorm reads them for a batch of one example only
    batches: tuple[Batch, ...]  # at least one

    @staticmethod
    def draw(task: LocalTask, buffers: Params, seed: int, num_batches: int) -> "LocalProbe":
        """Take the first batches of a shuffled pass; all of them when there are no more.

        Args:
            task: whose training data is asked; never test data.
            buffers: of the peer's own model.
            seed: of the pass; equal seeds give equal batches.
            num_batches: >= 1.
        """
        return LocalProbe(task.model, buffers, tuple(islice(task.batches(seed), num_batches)))

    @property
    def head(self) -> Head:
        return self.model.head

    @property
    def num_batches(self) -> int:
        return len(self.batches)

    def targets(self, batch: int = 0) -> Tensor:
        return self.batches[batch].targets

    @torch.no_grad()
    def loss(self, params: Params, batch: int = 0) -> float:
        inputs, targets = self.batches[batch]
        logits, _ = self.model.logits(params, self.buffers, inputs, Mode.PROBE)
        return cross_entropy(logits, targets).mean().item()

    @torch.no_grad()
    def features(self, params: Params, batch: int = 0) -> Tensor:
        return self.model.features(params, self.buffers, self.batches[batch].inputs, Mode.PROBE)

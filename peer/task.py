"""A peer's learning problem: a model, its training data, and the loss between them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.evaluate import evaluate
from peer.examples import Examples
from peer.models.split import Mode, Pass, SplitModel
from peer.options.methods import TrainOptions
from peer.solvers.base import Batch
from protocol.errors import DataError
from protocol.params import Params

__all__ = ["LocalTask"]


@dataclass(frozen=True, eq=False)
class LocalTask:
    """The `Task` of the solver slot, in memory.

    A last batch of a single example is kept: BatchNorm then uses its running statistics (Mode).

    Raises:
        DataError: there is no example, or a label without a class.
    """

    model: SplitModel
    examples: Examples
    options: TrainOptions = field(default_factory=TrainOptions)

    def __post_init__(self) -> None:
        if len(self.examples) == 0:
            raise DataError("there is no training example")
        low, high = (int(label) for label in self.examples.targets.aminmax())
        if low < 0 or high >= self.model.num_classes:
            raise DataError(
                f"labels lie in [{low}, {high}], the model has {self.model.num_classes} classes"
            )

    @property
    def num_examples(self) -> int:
        return len(self.examples)

    @cached_property
    def class_counts(self) -> tuple[int, ...]:
        counts = torch.bincount(self.examples.targets, minlength=self.model.num_classes)
        return tuple(counts.tolist())

    @property
    def num_batches(self) -> int:
        return -(-self.num_examples // self.options.batch_size)

    @property
    def rows(self) -> Mapping[str, int]:
        return self.model.rows

    @property
    def everything(self) -> Batch:
        return Batch(self.examples.inputs, self.examples.targets)

    def batches(self, seed: int) -> Iterator[Batch]:
        return self.examples.shuffled(self.options.batch_size, seed)

    def loss(self, params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, Params]:
        half = self.options.precision == "bf16"
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=half):
            logits, moved = self.model.logits(params, buffers, batch.inputs, Mode.TRAIN)
        full = logits.float() if half else logits
        return F.cross_entropy(full, batch.targets), moved

    def look(
        self,
        params: Params,
        buffers: Params,
        batch: Batch,
        mode: Mode = Mode.TRAIN,
        watch: Sequence[str] = (),
    ) -> Pass:
        half = self.options.precision == "bf16"
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=half):
            seen = self.model.run(params, buffers, batch.inputs, mode, watch)
        if not half:
            return seen
        return replace(seen, logits=seen.logits.float(), features=seen.features.float())

    def full_loss(self, params: Params, buffers: Params) -> float:
        score = evaluate(self.model, params, buffers, self.examples)
        return score.loss if score else 0.0

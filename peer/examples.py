"""Labelled examples in the memory of one device."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from peer.solvers.base import Batch
from protocol.errors import DataError

__all__ = ["Examples"]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """One split of a peer's data; may be empty.

    Raises:
        DataError: inputs and labels that do not pair up.
    """

    inputs: Tensor  # (examples, ...) floating-point, as the model takes them
    targets: Tensor  # (examples,) int64

    def __post_init__(self) -> None:
        if self.targets.ndim != 1 or len(self.inputs) != len(self.targets):
            raise DataError(
                f"inputs of shape {tuple(self.inputs.shape)} do not pair up with labels of shape "
                f"{tuple(self.targets.shape)}"
            )

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "Examples":
        return Examples(_moved(self.inputs, device), _moved(self.targets, device))

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        for first in range(0, len(self), batch_size):
            chosen = slice(first, first + batch_size)
            yield Batch(self.inputs[chosen], self.targets[chosen])

    def shuffled(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """One pass in an order that is the same on every device; the last batch may be smaller."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        order = _moved(order, self.targets.device)
        for first in range(0, len(self), batch_size):
            chosen = order[first : first + batch_size]
            yield Batch(self.inputs[chosen], self.targets[chosen])


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)

"""How tensors are written for the wire: exactly, or in fewer bytes with a stated error.

A codec maps each tensor of float32 with two or more dimensions to one coded tensor of the same
name; whatever else there is travels as it is. What a peer publishes is coded once, for all readers;
its own result enters its mix as the readers decode it. Everything is computed on the CPU, so that
all decode the same bits. Knows torch; knows no file and no peer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Final, Protocol

import torch
from torch import Tensor

from protocol.errors import LayoutError
from protocol.steps import STEPS
from protocol.tensors import Sections, dtype_of
from protocol.wire.messages import TensorSpec

__all__ = ["CODECS", "Codec", "Coder"]


class Codec(Protocol):
    """One way to write a tensor of float32, of shape (rows, ...), rows > 0."""

    @property
    def error(self) -> str:
        """The bound of what is lost, for a person."""

    def coded(self, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        """Dtype and shape of what travels."""

    def encode(self, tensor: Tensor) -> Tensor: ...

    def decode(self, coded: Tensor, shape: tuple[int, ...]) -> Tensor: ...


class _BFloat16:
    """The upper half of each number."""

    error = "each number to 1 part in 256 (8 bits of mantissa)"

    def coded(self, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        return "bfloat16", shape

    def encode(self, tensor: Tensor) -> Tensor:
        return tensor.to(torch.bfloat16)

    def decode(self, coded: Tensor, shape: tuple[int, ...]) -> Tensor:
        return coded.to(torch.float32)


class _Int8:
    """A row is its scale, a float32, and whole multiples of it in [-127, 127], one byte each.

    The scale is the row's largest magnitude over 127. A row that holds a NaN or an infinity decodes
    to NaN as a whole: nothing that is not finite looks finite afterwards.
    """

    error = "each number to 1/254 of the largest magnitude in its row"

    def coded(self, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        return "uint8", (shape[0], 4 + prod(shape[1:]))

    def encode(self, tensor: Tensor) -> Tensor:
        rows = tensor.reshape(tensor.shape[0], -1)
        scale = rows.abs().amax(dim=1, keepdim=True) / 127
        scale = torch.where(torch.isfinite(scale), scale, torch.nan)
        steps = torch.nan_to_num(rows / scale, nan=0.0, posinf=0.0, neginf=0.0)
        whole = steps.round().clamp(-127, 127).to(torch.int8)
        return torch.cat([scale.contiguous().view(torch.uint8), whole.view(torch.uint8)], dim=1)

    def decode(self, coded: Tensor, shape: tuple[int, ...]) -> Tensor:
        scale = coded[:, :4].clone(memory_format=torch.contiguous_format).view(torch.float32)
        whole = coded[:, 4:].view(torch.int8)
        return (whole.to(torch.float32) * scale).reshape(shape)


CODECS: Final[Mapping[str, Codec | None]] = MappingProxyType(
    {"fp32": None, "bf16": _BFloat16(), "int8": _Int8()}
)


class Coder:
    """One run's codec, over the tensors that the run shares."""

    def __init__(self, codec: str, specs: Sequence[TensorSpec]) -> None:
        """Prepare.

        Args:
            codec: a key of CODECS; one that sends steps leaves results as they are.
            specs: of what is shared, uncoded; their digests do not matter.
        """
        self._codec = None if codec in STEPS else CODECS[codec]
        self._specs = {(spec.section, spec.name): spec for spec in specs}

    @property
    def is_exact(self) -> bool:
        return self._codec is None

    @property
    def coded_specs(self) -> tuple[TensorSpec, ...]:
        """What is shared, as it travels."""
        return tuple(self._coded(spec) for spec in self._specs.values())

    def encode(self, sections: Sections) -> dict[str, dict[str, Tensor]]:
        """What travels in place of these tensors; on the CPU."""
        return {
            section: {name: self._encoded(tensor) for name, tensor in tensors.items()}
            for section, tensors in sections.items()
        }

    def decode(self, sections: Sections) -> Sections:
        """What is meant by tensors that came; those that nobody coded are given back as they are.

        Raises:
            LayoutError: a tensor is neither what the run shares nor its coded form.
        """
        if self._codec is None:
            return sections
        return {
            section: {name: self._decoded(section, name, t) for name, t in tensors.items()}
            for section, tensors in sections.items()
        }

    def _coded(self, spec: TensorSpec) -> TensorSpec:
        if self._codec is None or not _is_coded(spec.dtype, spec.shape):
            return spec
        dtype, shape = self._codec.coded(spec.shape)
        return replace(spec, dtype=dtype, shape=shape)

    def _encoded(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach().cpu()
        if self._codec is None or not _is_coded(dtype_of(tensor), tuple(tensor.shape)):
            return tensor
        return self._codec.encode(tensor)

    def _decoded(self, section: str, name: str, tensor: Tensor) -> Tensor:
        spec = self._specs.get((section, name))
        seen = dtype_of(tensor), tuple(tensor.shape)
        if self._codec is None or spec is None or seen == (spec.dtype, spec.shape):
            return tensor
        coded = self._coded(spec)
        if seen != (coded.dtype, coded.shape):
            raise LayoutError(
                f"{section}/{name} came as {seen[0]} {seen[1]}, not as {coded.dtype} {coded.shape}"
            )
        return self._codec.decode(tensor, spec.shape)


def _is_coded(dtype: str, shape: tuple[int, ...]) -> bool:
    return dtype == "float32" and len(shape) > 1 and prod(shape) > 0

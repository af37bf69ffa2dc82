"""Steps: what brings a reader from one version of a sender's results to the next, in fewer bytes.

A sender keeps one public version of its results, the replica, which is what all others mix. Each
round the replica moves towards the new result by a step that its readers can carry out too, so
that replica and copies stay equal bit for bit. What a step leaves out is not lost: the next one is
made from the replica, and so begins with what is still missing.

Both sides run the same functions of numpy; each operation rounds once, as IEEE 754 says, so that
all compute the same bits. Knows bytes and shapes; no torch, no file, no peer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.errors import LayoutError, RemoteProtocolError
from protocol.wire.layout import DTYPES
from protocol.wire.messages import TensorSpec

__all__ = ["MAX_TOPK", "STEPS", "Stepper", "advance"]

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

MAX_TOPK = 0.5  # of the numbers: each costs its index too, so that half of them cost as much as all
MAX_ELEMENTS = 2**31 - 1  # of one tensor: an index has 32 bits
_BLOCK = 1 << 18  # elements at a time: what is computed between fits the cache


class _Form(Protocol):
    """One way to write a step of a matrix of float32: (rows, columns), neither of them 0."""

    @property
    def dtype(self) -> str:
        """Of what travels; no other form has it."""

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        """Of what travels."""

    def fits(self, shape: tuple[int, ...], rows: int, columns: int) -> bool:
        """Is this the shape of a step of such a matrix?"""

    def encode(self, base: Floats, wanted: Floats) -> Bytes:
        """The step from `base` towards `wanted`, as bytes; both are finite."""

    def apply(self, base: Floats, step: Bytes, into: Floats) -> None:
        """Write into `into` where the step leads.

        Raises:
            RemoteProtocolError: `encode` makes no such step.
        """


class _Delta:
    """The difference as whole multiples of a scale, one for each row: its largest magnitude / 127.

    First the scales of all rows, float32, then one signed byte for each number.
    """

    dtype = "uint8"
    error = "each number to 1/254 of the largest change in its row since the last result"

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        return (4 * rows + rows * columns,)

    def fits(self, shape: tuple[int, ...], rows: int, columns: int) -> bool:
        return shape == self.shape(rows, columns)

    def encode(self, base: Floats, wanted: Floats) -> Bytes:
        rows, columns = base.shape
        scales = np.zeros(rows, np.float32)
        whole = np.zeros((rows, columns), np.int8)
        for part in _blocks(rows, columns):
            off = wanted[part] - base[part]
            scale = scales[part]
            np.divide(np.abs(off).max(axis=1), np.float32(127), out=scale)
            moves = scale > 0
            np.divide(off, scale[:, None], out=off, where=moves[:, None])
            off[~moves] = 0
            np.clip(np.rint(off, out=off), -127, 127, out=off)
            whole[part] = off
        return np.concatenate([scales.view(np.uint8), whole.reshape(-1).view(np.uint8)])

    def apply(self, base: Floats, step: Bytes, into: Floats) -> None:
        rows, columns = base.shape
        scales = step[: 4 * rows].view(np.float32)
        whole = step[4 * rows :].view(np.int8).reshape(rows, columns)
        for part in _blocks(rows, columns):
            scale = scales[part]
            if not (np.isfinite(scale).all() and (scale >= 0).all()):
                raise RemoteProtocolError("a scale that is negative or not finite")
            np.multiply(whole[part], scale[:, None], out=into[part])
            np.add(base[part], into[part], out=into[part])


class _TopK:
    """The numbers that are furthest from the replica: their indexes, rising, and their values.

    Of two that are equally far the one with the lower index comes first.
    """

    dtype = "int32"
    error = "none where it is sent; the rest follows in later rounds"

    def __init__(self, share: float) -> None:
        self._share = share

    def shape(self, rows: int, columns: int) -> tuple[int, ...]:
        return (2, max(1, int(rows * columns * self._share)))

    def fits(self, shape: tuple[int, ...], rows: int, columns: int) -> bool:
        """A run may have any share."""
        return len(shape) == 2 and shape[0] == 2 and 0 < shape[1] <= rows * columns

    def encode(self, base: Floats, wanted: Floats) -> Bytes:
        _, count = self.shape(*base.shape)
        off = wanted.reshape(-1) - base.reshape(-1)
        np.abs(off, out=off)
        least = np.partition(off, off.size - count)[off.size - count]
        chosen = off > least
        room = count - np.count_nonzero(chosen)
        for part in _blocks(off.size, 1):
            ties = np.flatnonzero(off[part] == least)[:room]
            chosen[part][ties] = True
            room -= ties.size
        indexes = np.flatnonzero(chosen)
        values = wanted.reshape(-1)[indexes]
        both = np.concatenate([indexes.astype(np.int32), values.view(np.int32)])
        return both.view(np.uint8)

    def apply(self, base: Floats, step: Bytes, into: Floats) -> None:
        indexes, bits = step.view(np.int32).reshape(2, -1)
        values, flat, last = bits.view(np.float32), into.reshape(-1), -1
        if (low := indexes.min()) < 0 or (high := indexes.max()) >= base.size:
            told = f"{low}" if low < 0 else f"{high}"
            raise RemoteProtocolError(f"index {told}, must be in [0, {base.size})")
        np.copyto(into, base)
        for first in range(0, indexes.size, _BLOCK):
            part = slice(first, first + _BLOCK)
            at, new = indexes[part], values[part]
            if at[0] <= last or not (at[1:] > at[:-1]).all():
                raise RemoteProtocolError("indexes that do not rise")
            if not np.isfinite(new).all():
                raise RemoteProtocolError("a value that is not finite")
            flat[at] = new
            last = at[-1]


STEPS: Final[Mapping[str, str]] = MappingProxyType(
    {"delta": _Delta.error, "topk": _TopK.error}
)  # names of codecs, and their errors for a person


class Stepper:
    """One run's way to write steps, over the tensors that the run shares."""

    def __init__(self, codec: str, topk: float, specs: Sequence[TensorSpec]) -> None:
        """Prepare.

        Args:
            codec: a key of STEPS.
            topk: share of the numbers of a tensor that travel, in (0, MAX_TOPK]; for `topk`.
            specs: of what is shared; their digests do not matter.
        """
        forms: dict[str, _Form] = {"delta": _Delta(), "topk": _TopK(topk)}
        self._form = forms[codec]
        self._specs = tuple(specs)

    @property
    def step_specs(self) -> tuple[TensorSpec, ...]:
        """A step, as it travels: a tensor of the same name for each one that is shared."""
        return tuple(self.coded(spec) for spec in self._specs)

    def encode(self, base: Floats, wanted: Floats) -> tuple[Bytes, Floats] | None:
        """The step of one tensor, as bytes, and where it leads; None where that is not finite.

        Args:
            base: the replica, contiguous.
            wanted: the new result, contiguous, of the same shape.
        """
        rows = base.shape[0]
        flat, aim = base.reshape(rows, -1), wanted.reshape(rows, -1)
        into = np.empty_like(flat)
        with np.errstate(all="ignore"):
            if not (np.isfinite(flat).all() and np.isfinite(aim).all()):
                return None
            step = self._form.encode(flat, aim)
            try:
                self._form.apply(flat, step, into)
            except RemoteProtocolError:
                return None  # a change too large for a float32
        if not np.isfinite(into).all():
            return None
        return step, into.reshape(base.shape)

    def coded(self, spec: TensorSpec) -> TensorSpec:
        """What a step of this tensor is; the same where it is the new value itself."""
        num = prod(spec.shape)
        if spec.dtype != "float32" or len(spec.shape) < 2 or not 0 < num <= MAX_ELEMENTS:
            return spec
        rows = spec.shape[0]
        shape = self._form.shape(rows, num // rows)
        if prod(shape) * DTYPES[self._form.dtype] >= 4 * num:
            return spec
        return replace(spec, dtype=self._form.dtype, shape=shape)


def advance(
    spec: TensorSpec, step: TensorSpec, base: memoryview, came: memoryview, into: memoryview
) -> None:
    """Carry out a step of one tensor: write its new value.

    Args:
        spec: what the tensor is.
        step: what its step is, by the schema of the run.
        base: the tensor's bytes before.
        came: the step's bytes.
        into: where the new ones go, as many as `base` has; nothing else is allocated but a block.

    Raises:
        LayoutError: sizes that are not those of the specs, or a step of no known form.
        RemoteProtocolError: a step that no sender makes.
    """
    num_bytes = prod(spec.shape) * DTYPES[spec.dtype]
    if {len(base), len(into)} != {num_bytes} or len(came) != prod(step.shape) * DTYPES[step.dtype]:
        raise LayoutError(
            f"{spec.name} of {len(base)} and {len(into)} bytes with a step of {len(came)}"
        )
    if not num_bytes:
        return
    old, new, moved = (np.frombuffer(each, np.uint8) for each in (base, into, came))
    if (step.dtype, step.shape) == (spec.dtype, spec.shape):
        np.copyto(new, moved)
        return
    forms: dict[str, _Form] = {_Delta.dtype: _Delta(), _TopK.dtype: _TopK(MAX_TOPK)}
    form, rows = forms.get(step.dtype), spec.shape[0] if len(spec.shape) > 1 else 0
    if (
        form is None
        or spec.dtype != "float32"
        or not rows
        or not form.fits(step.shape, rows, prod(spec.shape[1:]))
    ):
        raise LayoutError(
            f"{spec.name} is {spec.dtype} of {spec.shape}, its step {step.dtype} of {step.shape}"
        )
    with np.errstate(all="ignore"):
        try:
            form.apply(
                old.view(np.float32).reshape(rows, -1),
                moved,
                new.view(np.float32).reshape(rows, -1),
            )
        except RemoteProtocolError as error:
            raise RemoteProtocolError(
                f"the step of {spec.section}/{spec.name} has {error}"
            ) from None


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Rows, so many at a time that a block is small; at least one."""
    each = max(1, _BLOCK // columns)
    for first in range(0, rows, each):
        yield slice(first, first + each)

"""Targets `coded` and `steps`: tensors as a neighbour may send them, by whatever codec."""

from math import prod

import torch
from torch import Tensor

from protocol.codecs import CODECS, Coder
from protocol.errors import LayoutError, RemoteProtocolError
from protocol.steps import MAX_TOPK, STEPS, Stepper, advance
from protocol.wire.layout import DTYPES
from protocol.wire.messages import TensorSpec
from tests.fuzz.feed import Feed

SECTIONS = ("params", "buffers")
SIDES = (0, 1, 2, 3, 7)


def coded(data: bytes) -> None:
    """A run of up to three tensors; what came has the right form more often than not."""
    feed = Feed(data)
    codec = feed.pick(tuple(CODECS))
    specs = tuple(
        TensorSpec(
            feed.pick(("params", "buffers")), f"t{number}", feed.pick(DTYPE), _shape(feed), b""
        )
        for number in range(1 + feed.byte() % 3)
    )
    coder = Coder(codec, specs)
    came: dict[str, dict[str, Tensor]] = {"params": {}, "buffers": {}, "extras": {}}
    for plain, travels in zip(specs, coder.coded_specs, strict=True):
        spec = feed.pick((travels, travels, plain))
        dtype, shape = spec.dtype, spec.shape
        if feed.byte() == 255:
            dtype, shape = feed.pick(DTYPE), _shape(feed)
        came[spec.section][spec.name] = _tensor(feed, dtype, shape)
    try:
        sections = coder.decode(came)
    except LayoutError:
        return
    for spec in specs:
        tensor = sections[spec.section][spec.name]
        if not coder.is_exact:
            assert tuple(tensor.shape) == spec.shape or came[spec.section][spec.name] is tensor


def steps(data: bytes) -> None:
    """A step of one tensor, of the form that the run's codec has, or of any; and any bytes."""
    feed = Feed(data)
    spec = TensorSpec("params", "w", feed.pick(("float32", *DTYPE)), _shape(feed), b"")
    stepper = Stepper(feed.pick(tuple(STEPS)), feed.pick((0.01, 0.3, MAX_TOPK)), (spec,))
    step = stepper.coded(spec)
    if feed.byte() == 255:
        step = TensorSpec("params", "w", feed.pick(DTYPE), _shape(feed), b"")
    base = _content(feed, spec)
    came = _content(feed, step)[: feed.pick((None, None, None, -1, 3))]
    frame = bytearray(b"\x5a" * (len(base) + 128))  # what lies around it is somebody else's
    into = memoryview(frame)[64 : 64 + len(base)]
    try:
        advance(spec, step, memoryview(base), memoryview(came), into)
    except (LayoutError, RemoteProtocolError):
        pass
    assert frame[:64] == frame[64 + len(base) :] == b"\x5a" * 64


DTYPE = ("float32", *DTYPES)


def _shape(feed: Feed) -> tuple[int, ...]:
    return tuple(feed.pick(SIDES) for _ in range(feed.byte() % 4))


def _content(feed: Feed, spec: TensorSpec) -> bytearray:
    """Any bits: NaN, infinities and denormals among them."""
    num_bytes = prod(spec.shape) * DTYPES[spec.dtype]
    return bytearray(feed.take(num_bytes).ljust(num_bytes, b"\x7f"))


def _tensor(feed: Feed, dtype: str, shape: tuple[int, ...]) -> Tensor:
    content = _content(feed, TensorSpec("params", "t", dtype, shape, b""))
    if not content:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    if dtype == "bool":
        content = bytearray(byte & 1 for byte in content)
    return torch.frombuffer(content, dtype=torch.uint8).view(getattr(torch, dtype)).reshape(shape)

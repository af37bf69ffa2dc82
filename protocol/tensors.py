"""Parameters as bytes: one flat body, every tensor at a multiple of 64 bytes, and back as views.

Knows torch and the layout of a body; knows nothing of files, sockets or rounds. A body is what
crosses the wire and what lies in a snapshot file; reading one copies nothing.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from protocol.errors import LayoutError
from protocol.params import Params
from protocol.wire.digest import digest
from protocol.wire.layout import SECTIONS, Layout
from protocol.wire.messages import TensorSpec

__all__ = ["SECTIONS", "Sections", "dtype_of", "read_body", "spec_body", "write_body"]


Sections = Mapping[str, Params]  # by section

_DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
_TORCH = {name: dtype for dtype, name in _DTYPES.items()}


def dtype_of(tensor: Tensor) -> str:
    """Name of a tensor's dtype on the wire.

    Raises:
        LayoutError: the wire has no such dtype.
    """
    if tensor.dtype not in _DTYPES:
        raise LayoutError(f"dtype {tensor.dtype} does not travel; {', '.join(_TORCH)} do")
    return _DTYPES[tensor.dtype]


def raw(tensor: Tensor) -> memoryview:
    """A tensor's bytes in row-major order; copied only if on a device or not contiguous."""
    flat = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8)
    return flat.numpy().data


def spec_body(sections: Sections) -> tuple[TensorSpec, ...]:
    """List the tensors of a body with their digests, in the order in which they lie in it.

    Raises:
        LayoutError: a dtype does not travel.
    """
    return tuple(
        TensorSpec(section, name, dtype_of(t), tuple(t.shape), digest(raw(t)))
        for section in SECTIONS
        for name, t in sections.get(section, {}).items()
    )


def write_body(sections: Sections, specs: tuple[TensorSpec, ...], into: memoryview) -> None:
    """Copy every tensor to its place in a buffer of the layout's size; gaps are left as they are.

    Raises:
        LayoutError: the buffer is too small.
    """
    layout = Layout.of(specs)
    if len(into) < layout.body_bytes:
        raise LayoutError(f"a buffer of {len(into)} bytes for a body of {layout.body_bytes}")
    for spec, place in zip(specs, layout.places, strict=True):
        into[place.start : place.end] = raw(sections[spec.section][spec.name])


def read_body(specs: tuple[TensorSpec, ...], body: memoryview) -> dict[str, dict[str, Tensor]]:
    """Tensors of a body by section, as views of it: they live as long as the buffer, and share it.

    Raises:
        LayoutError: the body is shorter than its tensors.
    """
    layout = Layout.of(specs)
    if len(body) < layout.body_bytes:
        raise LayoutError(f"a body of {len(body)} bytes, its tensors need {layout.body_bytes}")
    sections: dict[str, dict[str, Tensor]] = {section: {} for section in SECTIONS}
    for spec, place in zip(specs, layout.places, strict=True):
        dtype = _TORCH[spec.dtype]
        if place.end == place.start:
            tensor = torch.empty(spec.shape, dtype=dtype)
        else:
            flat = torch.frombuffer(body[place.start : place.end], dtype=torch.uint8)
            tensor = flat.view(dtype).reshape(spec.shape)
        sections[spec.section][spec.name] = tensor
    return sections

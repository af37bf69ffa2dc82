"""What each codec loses, on any tensor: never more than it states."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from protocol.codecs import CODECS, Coder
from protocol.errors import LayoutError
from protocol.tensors import dtype_of, spec_body
from protocol.wire.layout import schema_digest

LOSSY = sorted(name for name, codec in CODECS.items() if codec is not None)
SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)
MAGNITUDES = st.integers(-30, 30)
SEEDS = st.integers(0, 2**32)


def drawn(shape: tuple[int, ...], magnitude: int, seed: int) -> Tensor:
    """Rows of very different sizes around 10^magnitude, with zeros among them."""
    dice = torch.Generator().manual_seed(seed)
    tensor = torch.randn(shape, generator=dice, dtype=torch.float64)
    rows = 10.0 ** (3 * torch.randn((shape[0],) + (1,) * (len(shape) - 1), generator=dice))
    kept = torch.rand(shape, generator=dice) > 0.1
    return (tensor * rows * 10.0**magnitude * kept).clamp(-1e38, 1e38).to(torch.float32)


def there_and_back(codec: str, tensor: Tensor) -> Tensor:
    sections = {"params": {"w": tensor}}
    coder = Coder(codec, spec_body(sections))
    coded = coder.encode(sections)
    (spec,) = coder.coded_specs
    assert (spec.dtype, spec.shape) == (
        dtype_of(coded["params"]["w"]),
        tuple(coded["params"]["w"].shape),
    )
    return coder.decode(coded)["params"]["w"]


@given(shape=SHAPES, magnitude=MAGNITUDES, seed=SEEDS)
def test_bf16_keeps_each_number_to_one_part_in_256(
    shape: tuple[int, ...], magnitude: int, seed: int
) -> None:
    tensor = drawn(shape, magnitude, seed)
    found = there_and_back("bf16", tensor)
    assert found.shape == tensor.shape
    tiny = 2.0**-133  # half the smallest step between subnormal numbers of bfloat16
    assert ((found - tensor).abs().double() <= tensor.abs().double() / 256 + 2 * tiny).all()


@given(shape=SHAPES, magnitude=MAGNITUDES, seed=SEEDS)
def test_int8_keeps_each_number_to_half_a_step_of_its_row(
    shape: tuple[int, ...], magnitude: int, seed: int
) -> None:
    tensor = drawn(shape, magnitude, seed)
    found = there_and_back("int8", tensor)
    assert found.shape == tensor.shape
    largest = tensor.reshape(shape[0], -1).abs().amax(dim=1).double()
    off = (found - tensor).reshape(shape[0], -1).abs().amax(dim=1).double()
    rounding = 1.0 + 1e-5  # of float32, on top
    assert (off <= largest / 254 * rounding + 127 * 2.0**-149).all()


@given(shape=SHAPES, seed=SEEDS)
def test_fp32_loses_nothing(shape: tuple[int, ...], seed: int) -> None:
    tensor = drawn(shape, 0, seed)
    assert torch.equal(there_and_back("fp32", tensor), tensor)


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_does_not_look_finite_afterwards(codec: str, bad: float) -> None:
    tensor = torch.ones(3, 4)
    tensor[1, 2] = bad
    found = there_and_back(codec, tensor)
    assert not found[1, 2].isfinite()
    assert found[0].isfinite().all()
    assert found[2].isfinite().all()


@pytest.mark.parametrize("codec", LOSSY)
def test_zeros_and_small_exact_numbers_stay_what_they_are(codec: str) -> None:
    tensor = torch.tensor([[0.0, 0.0], [127.0, -64.0], [-1.0, 1.0]])
    assert torch.equal(there_and_back(codec, tensor), tensor)


@pytest.mark.parametrize("codec", LOSSY)
def test_only_matrices_of_float32_are_coded(codec: str) -> None:
    plain = {
        "bias": torch.tensor([1.0, 1e-9]),
        "count": torch.tensor(3),
        "double": torch.rand(2, 2, dtype=torch.float64),
        "none": torch.empty(0, 4),
    }
    coder = Coder(codec, spec_body({"params": plain}))
    coded = coder.encode({"params": plain})["params"]
    assert all(torch.equal(coded[name], tensor) for name, tensor in plain.items())
    assert schema_digest(coder.coded_specs) == schema_digest(spec_body({"params": plain}))


@pytest.mark.parametrize("codec", LOSSY)
def test_who_sends_plain_tensors_is_understood(codec: str) -> None:
    """A relay does: its model is where all begin."""
    sections = {"params": {"w": torch.rand(3, 4)}, "extras": {"memory": torch.rand(2, 2)}}
    coder = Coder(codec, spec_body({"params": sections["params"]}))
    found = coder.decode(sections)
    assert torch.equal(found["params"]["w"], sections["params"]["w"])
    assert torch.equal(found["extras"]["memory"], sections["extras"]["memory"])


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize(
    "came", [torch.zeros(4, 3), torch.zeros(3, 4, dtype=torch.int64), torch.zeros(0)]
)
def test_a_tensor_of_neither_form_is_refused(codec: str, came: Tensor) -> None:
    coder = Coder(codec, spec_body({"params": {"w": torch.zeros(3, 4)}}))
    with pytest.raises(LayoutError, match="params/w came as"):
        coder.decode({"params": {"w": came}})


@given(content=st.binary(min_size=24, max_size=24))
def test_any_bytes_of_the_right_size_decode_to_something(content: bytes) -> None:
    coder = Coder("int8", spec_body({"params": {"w": torch.zeros(3, 4)}}))
    came = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(3, 8)
    assert coder.decode({"params": {"w": came}})["params"]["w"].shape == (3, 4)

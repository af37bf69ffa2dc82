"""Steps from one version of a result to the next, on any tensor: what they lose, and what of them
is refused."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import LayoutError, RemoteProtocolError
from protocol.steps import MAX_TOPK, STEPS, Bytes, Floats, Stepper, advance
from protocol.wire.layout import DTYPES, Layout
from protocol.wire.messages import TensorSpec

CODECS = st.sampled_from(sorted(STEPS))
SHAPES = st.lists(st.integers(2, 9), min_size=2, max_size=4).map(tuple)
SHARES = st.floats(0.001, MAX_TOPK)
SEEDS = st.integers(0, 2**32 - 1)


def drawn(shape: tuple[int, ...], seed: int) -> Floats:
    """Rows of very different sizes, with zeros among them."""
    dice = np.random.default_rng(seed)
    rows = 10.0 ** (3 * dice.standard_normal((shape[0],) + (1,) * (len(shape) - 1)))
    kept = dice.random(shape) > 0.1
    return (dice.standard_normal(shape) * rows * kept).astype(np.float32)


def spec_of(shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    return TensorSpec("params", "w", dtype, shape, bytes(32))


def stepper_of(codec: str, shape: tuple[int, ...], topk: float = 0.1) -> Stepper:
    return Stepper(codec, topk, [spec_of(shape)])


def moved(stepper: Stepper, base: Floats, wanted: Floats) -> Floats:
    """The replica after one step."""
    if stepper.step_specs == (spec_of(base.shape),):
        return wanted  # a matrix so small that its new value costs no more
    found = stepper.encode(base, wanted)
    assert found is not None
    return found[1]


def carried_out(stepper: Stepper, base: Floats, step: Bytes) -> Floats:
    """What a reader makes of its copy and the step."""
    (coded,), spec = stepper.step_specs, spec_of(base.shape)
    into = bytearray(base.nbytes)
    advance(spec, coded, memoryview(base.tobytes()), memoryview(step.tobytes()), memoryview(into))
    return np.frombuffer(into, np.float32).reshape(base.shape)


@given(codec=CODECS, shape=SHAPES, topk=SHARES, seed=SEEDS)
def test_a_reader_of_steps_holds_the_replica_bit_for_bit(
    codec: str, shape: tuple[int, ...], topk: float, seed: int
) -> None:
    stepper = stepper_of(codec, shape, topk)
    if stepper.step_specs == (spec_of(shape),):
        return
    replica = copy = drawn(shape, seed)
    for round_no in range(1, 5):
        found = stepper.encode(replica, drawn(shape, seed + round_no))
        assert found is not None
        step, replica = found
        copy = carried_out(stepper, copy, step)
        assert copy.tobytes() == replica.tobytes()


@given(shape=SHAPES, seed=SEEDS)
def test_a_delta_is_off_by_half_a_step_of_the_largest_change_in_its_row(
    shape: tuple[int, ...], seed: int
) -> None:
    base, wanted = drawn(shape, seed), drawn(shape, seed + 1)
    found = moved(stepper_of("delta", shape), base, wanted)
    rows = (shape[0], -1)
    change = np.abs((wanted - base).reshape(rows)).max(axis=1, keepdims=True).astype(np.float64)
    off = np.abs(found.astype(np.float64) - wanted).reshape(rows)
    largest = np.maximum(np.abs(base), np.abs(wanted)).reshape(rows).astype(np.float64)
    rounding = 4 * np.finfo(np.float32).eps * largest + 127 * 2.0**-149  # of float32, on top
    assert (off <= change / 254 * (1 + 1e-5) + rounding).all()


@given(shape=SHAPES, seed=SEEDS)
def test_what_a_delta_leaves_out_comes_with_the_next(shape: tuple[int, ...], seed: int) -> None:
    """A result that stays is reached: what is missing shrinks to 1/254 in each round."""
    stepper = stepper_of("delta", shape)
    replica, wanted = drawn(shape, seed), drawn(shape, seed + 1)
    rows = (shape[0], -1)
    change = np.abs((wanted - replica).reshape(rows)).max(axis=1, keepdims=True)
    for _ in range(4):
        replica = moved(stepper, replica, wanted)
    largest = np.abs(wanted).reshape(rows).max(axis=1, keepdims=True)
    left = np.abs(replica - wanted).reshape(rows)
    assert (left <= change * 1e-9 + largest * 1e-6).all()  # 254^-4, and float32's own rounding


@given(shape=SHAPES, topk=SHARES, seed=SEEDS)
def test_topk_sends_what_is_furthest_and_everything_in_the_end(
    shape: tuple[int, ...], topk: float, seed: int
) -> None:
    stepper = stepper_of("topk", shape, topk)
    if stepper.step_specs == (spec_of(shape),):
        return
    replica, wanted = drawn(shape, seed), drawn(shape, seed + 1)
    num, count = wanted.size, max(1, int(wanted.size * topk))
    for round_no in range(1, math.ceil(num / count) + 1):
        before = np.abs(wanted - replica)
        replica = moved(stepper, replica, wanted)
        left = np.abs(wanted - replica)
        assert np.count_nonzero(left) <= max(0, num - count * round_no)
        assert left.max() <= np.sort(before, axis=None)[-count]
    assert (replica == wanted).all()


def test_of_two_that_are_equally_far_the_first_is_sent() -> None:
    base = np.zeros((2, 10), np.float32)
    wanted = base.copy()
    wanted[0, 3], wanted[0, 7], wanted[1, 2] = 1.0, -2.0, -1.0
    found = moved(stepper_of("topk", (2, 10), 0.1), base, wanted)
    assert found[0, 3] == 1.0
    assert found[0, 7] == -2.0
    assert found[1, 2] == 0.0


@pytest.mark.parametrize(
    ("codec", "num_bytes"), [("delta", 4 * 120 + 120 * 100), ("topk", 8 * 1200)]
)
def test_a_step_has_the_size_that_the_schema_and_the_options_say(
    codec: str, num_bytes: int
) -> None:
    specs = stepper_of(codec, (120, 10, 10), 0.1).step_specs
    assert Layout.of(specs).body_bytes == num_bytes


@pytest.mark.parametrize("codec", sorted(STEPS))
@pytest.mark.parametrize(
    "spec",
    [
        spec_of((1000,)),  # a bias
        spec_of((), "int64"),  # a counter
        spec_of((9, 9), "float64"),
        spec_of((9, 0)),
        spec_of((1, 1)),  # would cost more
    ],
)
def test_what_is_no_matrix_of_float32_travels_as_it_is(codec: str, spec: TensorSpec) -> None:
    assert Stepper(codec, 0.1, [spec]).step_specs == (spec,)
    raw = bytes(range(256)) * 64
    new = memoryview(raw[: math.prod(spec.shape) * DTYPES[spec.dtype]])
    into = bytearray(len(new))
    advance(spec, spec, memoryview(bytes(len(new))), new, memoryview(into))
    assert into == new


@pytest.mark.parametrize("codec", sorted(STEPS))
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_there_is_no_step_from_or_to_what_is_not_finite(codec: str, bad: float) -> None:
    fine = np.ones((3, 40), np.float32)
    odd = fine.copy()
    odd[1, 2] = bad
    stepper = stepper_of(codec, (3, 40))
    assert stepper.encode(fine, odd) is None
    assert stepper.encode(odd, fine) is None
    assert stepper.encode(fine, fine) is not None


def test_there_is_no_step_over_more_than_a_float_can_say() -> None:
    far = np.full((2, 40), 3e38, np.float32)
    assert stepper_of("delta", (2, 40)).encode(-far, far) is None


# -- hostile steps ------------------------------------------------------------------------------

BASE = np.zeros((4, 10), np.float32)


def topk_bytes(indexes: list[int], values: list[float]) -> Bytes:
    both = [np.array(indexes, np.int32), np.array(values, np.float32).view(np.int32)]
    return np.concatenate(both).view(np.uint8)


@pytest.mark.parametrize(
    ("indexes", "values", "why"),
    [
        ([-1, 0, 1, 2], [1.0] * 4, r"index -1, must be in \[0, 40\)"),
        ([0, 1, 2, 40], [1.0] * 4, r"index 40, must be in \[0, 40\)"),
        ([0, 1, 1, 2], [1.0] * 4, "indexes that do not rise"),
        ([3, 2, 1, 0], [1.0] * 4, "indexes that do not rise"),
        ([0, 1, 2, -(2**31)], [1.0] * 4, "index -2147483648, must"),
        ([0, 1, 2, 3], [1.0, math.nan, 1.0, 1.0], "a value that is not finite"),
        ([0, 1, 2, 3], [1.0, 1.0, math.inf, 1.0], "a value that is not finite"),
    ],
)
def test_a_topk_step_that_no_sender_makes_is_refused(
    indexes: list[int], values: list[float], why: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=f"the step of params/w has {why}"):
        carried_out(stepper_of("topk", (4, 10)), BASE, topk_bytes(indexes, values))


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, -1.0])
def test_a_delta_with_a_scale_that_no_sender_has_is_refused(scale: float) -> None:
    scales = np.array([1.0, scale, 1.0, 1.0], np.float32).view(np.uint8)
    step = np.concatenate([scales, np.ones(40, np.uint8)])
    with pytest.raises(RemoteProtocolError, match="a scale that is negative or not finite"):
        carried_out(stepper_of("delta", (4, 10)), BASE, step)


@pytest.mark.parametrize("codec", sorted(STEPS))
@pytest.mark.parametrize("num_bytes", [0, 1, 31, 33, 55, 57, 4096])
def test_a_step_of_another_size_is_refused(codec: str, num_bytes: int) -> None:
    with pytest.raises(LayoutError, match="with a step of"):
        carried_out(stepper_of(codec, (4, 10)), BASE, np.zeros(num_bytes, np.uint8))


@pytest.mark.parametrize("dtype", ["float16", "int64", "bool"])
def test_a_step_of_no_known_form_is_refused(dtype: str) -> None:
    step = TensorSpec("params", "w", dtype, (4,), bytes(32))
    came: Any = memoryview(bytes(4 * DTYPES[dtype]))
    with pytest.raises(LayoutError, match=f"w is float32 of .*, its step {dtype}"):
        advance(spec_of((4, 10)), step, memoryview(bytes(160)), came, memoryview(bytearray(160)))


@given(codec=CODECS, content=st.binary(min_size=56, max_size=56))
def test_any_bytes_of_the_right_size_lead_somewhere_or_are_refused(
    codec: str, content: bytes
) -> None:
    stepper = stepper_of(codec, (4, 10))
    step = np.frombuffer(content, np.uint8)[: Layout.of(stepper.step_specs).body_bytes]
    try:
        assert carried_out(stepper, BASE, step).shape == (4, 10)
    except RemoteProtocolError:
        return


@pytest.mark.parametrize(
    ("shape", "dtype", "of_step"),
    [
        ((), "uint8", (4,)),
        ((), "int32", (2, 1)),
        ((10,), "int32", (2, 1)),
        ((4, 10), "uint8", (55,)),
        ((4, 10), "uint8", (4, 14)),
        ((4, 10), "int32", (2, 0)),
        ((4, 10), "int32", (3, 4)),
        ((4, 10), "int32", (2, 41)),
        ((4, 10), "int32", (8,)),
    ],
)
def test_a_step_of_a_shape_that_its_tensor_has_none_of_is_refused(
    shape: tuple[int, ...], dtype: str, of_step: tuple[int, ...]
) -> None:
    num_bytes = 4 * math.prod(shape)
    came = memoryview(bytes(math.prod(of_step) * DTYPES[dtype]))
    base, into = memoryview(bytes(num_bytes)), memoryview(bytearray(num_bytes))
    with pytest.raises(LayoutError, match=r"w is float32 of .*, its step "):
        advance(spec_of(shape), spec_of(of_step, dtype), base, came, into)


@pytest.mark.parametrize(
    ("codec", "shape"),
    [("delta", (32, 1 << 17)), ("topk", (32, 1 << 17)), ("delta", (1 << 23, 2))],  # 16 to 64 MiB
)
def test_carrying_out_a_step_takes_a_few_megabytes_whatever_the_tensor_takes(
    codec: str, shape: tuple[int, int]
) -> None:
    stepper = stepper_of(codec, shape, 0.5 - 1e-3)
    base = np.zeros(shape, np.float32)
    found = stepper.encode(base, np.ones(shape, np.float32))
    assert found is not None
    (coded,), spec = stepper.step_specs, spec_of(shape)
    into, before, came = (
        memoryview(bytearray(base.nbytes)),
        memoryview(base.tobytes()),
        memoryview(found[0].tobytes()),
    )
    tracemalloc.start()
    advance(spec, coded, before, came, into)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert bytes(into) == found[1].tobytes()


@pytest.mark.parametrize("at", [0, (1 << 18) - 1, 1 << 18, (1 << 19) - 2])
def test_indexes_rise_from_block_to_block_too(at: int) -> None:
    stepper = stepper_of("topk", (8, 1 << 18), 0.25)
    base = np.zeros((8, 1 << 18), np.float32)
    indexes = np.arange(1 << 19, dtype=np.int32)
    indexes[at], indexes[at + 1] = indexes[at + 1], indexes[at]
    step = np.concatenate([indexes, np.ones(1 << 19, np.float32).view(np.int32)]).view(np.uint8)
    with pytest.raises(RemoteProtocolError, match="indexes that do not rise"):
        carried_out(stepper, base, step)


def test_a_step_of_what_does_not_move_takes_no_more_memory_than_any() -> None:
    """All numbers are equally far: which go is found without a list of all of them."""
    still = np.ones((64, 1 << 14), np.float32)
    stepper = stepper_of("topk", still.shape)
    tracemalloc.start()
    found = stepper.encode(still, still)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3.5 * still.nbytes
    assert found is not None
    indexes, _ = found[0].view(np.int32).reshape(2, -1)
    assert (indexes == np.arange(still.size // 10)).all()

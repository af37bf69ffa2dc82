"""Places of tensors, redone by hand."""

import pytest

from protocol.errors import LayoutError
from protocol.wire.digest import Hasher, digest
from protocol.wire.layout import DTYPES, MAX_BODY_BYTES, Layout, Place, schema_digest
from protocol.wire.messages import TensorSpec


def spec(
    name: str, *shape: int, dtype: str = "float32", section: str = "params", fill: int = 0
) -> TensorSpec:
    return TensorSpec(section, name, dtype, shape, bytes([fill]) * 32)


def test_tensors_begin_at_multiples_of_64_and_end_without_padding() -> None:
    layout = Layout.of(
        [
            spec("a", 5),  # 20 bytes
            spec("b"),  # 4
            spec("c", 0, 7),  # none
            spec("d", 2, 3, 4, dtype="float64", section="buffers"),  # 192
            spec("a", 3, dtype="bool", section="extras"),  # 3
        ]
    )
    assert layout.places == (
        Place(0, 20),
        Place(64, 68),
        Place(128, 128),
        Place(128, 320),
        Place(320, 323),
    )
    assert layout.body_bytes == 323


def test_nothing_has_no_bytes() -> None:
    assert Layout.of([]) == Layout((), 0)


def test_the_largest_body_is_allowed_and_one_byte_more_is_not() -> None:
    assert Layout.of([spec("a", MAX_BODY_BYTES, dtype="uint8")]).body_bytes == 1 << 36
    with pytest.raises(LayoutError, match="params/a: ends at byte 68719476737"):
        Layout.of([spec("a", MAX_BODY_BYTES + 1, dtype="uint8")])
    with pytest.raises(LayoutError, match="at most"):
        Layout.of([spec("a", *(2**40,) * 8)])


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        ([spec("a", dtype="complex64")], "complex64 must be one of float64"),
        ([spec("a", section="secrets")], "section must be one of params"),
        ([spec("a"), spec("a")], "params/a: comes twice"),
    ],
)
def test_what_cannot_be_laid_out_is_told(specs: list[TensorSpec], why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        Layout.of(specs)


def test_the_schema_is_names_shapes_dtypes_sections_and_order_but_not_content() -> None:
    base = [spec("a", 2), spec("b", 3)]
    same = [spec("a", 2, fill=1), spec("b", 3, fill=2)]
    assert schema_digest(base) == schema_digest(same)
    others = [
        [spec("b", 3), spec("a", 2)],
        [spec("a", 2), spec("b", 4)],
        [spec("a", 2), spec("c", 3)],
        [spec("a", 2), spec("b", 3, dtype="int32")],
        [spec("a", 2), spec("b", 3, section="extras")],
        [spec("a", 2)],
        [],
    ]
    digests = {schema_digest(specs) for specs in (base, *others)}
    assert len(digests) == 1 + len(others)


def test_the_digest_is_blake3_of_256_bits() -> None:
    # The first two of BLAKE3's official test vectors: no bytes, and one zero.
    assert digest(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest(b"\0").hex() == "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"
    assert digest(memoryview(b"x" * 5000)) == digest(b"x" * 5000)


def test_what_comes_in_parts_has_the_same_digest() -> None:
    hasher = Hasher()
    for part in (b"", b"x" * 3, memoryview(b"x" * 4997)):
        hasher.update(part)
    assert hasher.digest() == digest(b"x" * 5000)


def test_every_dtype_has_its_size() -> None:
    assert all(1 <= size <= 8 for size in DTYPES.values())
    assert (DTYPES["bfloat16"], DTYPES["float64"], DTYPES["bool"]) == (2, 8, 1)

"""Any message that fits its limits survives the wire; anything else leaves as one kind of error."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.errors import RemoteProtocolError
from protocol.wire.codec import COORDINATOR, DOCUMENTS, PEER, Codec, decode_document
from protocol.wire.fields import Range, Size
from protocol.wire.messages import SnapshotManifest, View
from protocol.wire.shape import pack

MANY = 6  # items of a list: the limits themselves are for the unit tests

PRINTABLE = st.characters(codec="utf-8", exclude_categories=["C", "Z"])
EVERYTHING: list[Any] = [*PEER, *COORDINATOR, *DOCUMENTS]


def instances(cls: Any) -> st.SearchStrategy[Any]:
    """Every instance of a message class whose fields are in their bounds."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, *(values(hints[field.name]) for field in fields(cls)))


def values(hint: Any) -> st.SearchStrategy[Any]:
    base, *limits = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    limit = next((one for one in limits if isinstance(one, Range | Size)), None)
    if get_origin(base) in (Union, UnionType):
        return st.one_of(*(values(part) for part in get_args(base)))
    if get_origin(base) is tuple:
        item, _ = get_args(base)
        assert isinstance(limit, Size)
        return st.lists(values(item), min_size=limit.low, max_size=min(limit.high, MANY)).map(tuple)
    if isinstance(base, type) and is_dataclass(base):
        return instances(base)
    if isinstance(base, type) and issubclass(base, StrEnum):
        return st.sampled_from(base)
    return scalars(base, limit)


def scalars(kind: Any, limit: Range | Size | None) -> st.SearchStrategy[Any]:
    low: Any = None if limit is None else limit.low
    high: Any = None if limit is None else limit.high
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(-(2**63) if low is None else low, 2**63 - 1 if high is None else high)
    if kind is float:
        return st.floats(low, high, allow_nan=False, allow_infinity=False)
    size = {"min_size": low or 0, "max_size": min(high or 100, 100)}
    return st.text(PRINTABLE, **size) if kind is str else st.binary(**size)


def anything(codec: Codec[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*(instances(cls) for cls in codec))


@pytest.mark.parametrize("codec", [PEER, COORDINATOR, DOCUMENTS], ids=["peer", "coord", "docs"])
@given(data=st.data())
def test_what_was_sent_is_what_arrives(codec: Codec[Any], data: st.DataObject) -> None:
    message = data.draw(anything(codec))
    encoded = codec.encode(message)
    assert codec.decode(encoded) == message
    assert codec.decode(memoryview(encoded)) == message
    assert codec.encode(codec.decode(encoded)) == encoded


PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=70),
    lambda inner: st.lists(inner, max_size=8)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize(
    "decode",
    [
        PEER.decode,
        COORDINATOR.decode,
        lambda data: decode_document(SnapshotManifest, data),
        lambda data: decode_document(View, data),
    ],
    ids=["peer", "coordinator", "manifest", "view"],
)
@given(data=st.binary(max_size=400) | PLAIN.map(pack))
@example(data=b"")
@example(data=b"\xdd\xff\xff\xff\xff")  # an array of four billion
@example(data=b"\x92\x03\xdb\xff\xff\xff\xff")  # a string of four gigabytes
@example(data=b"\x92\x08" + b"\xdd\x00\x0f\xff\xff" * 70)  # arrays in arrays, a million each
@example(data=b"\x91" * 400)
@example(data=b"\x92\x03\xc1")
@example(data=b"\x92\x03\xc7\x00\xff")  # an extension
def test_garbage_leaves_as_one_kind_of_error(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    try:
        decode(data)
    except RemoteProtocolError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 400


@given(data=st.data())
def test_a_mutated_message_is_refused_or_is_another_message(data: st.DataObject) -> None:
    encoded = bytearray(PEER.encode(data.draw(anything(PEER))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        if not encoded:
            return
    try:
        message = PEER.decode(bytes(encoded))
    except RemoteProtocolError:
        return
    assert PEER.decode(PEER.encode(message)) == message


@given(data=st.data())
def test_a_truncated_or_padded_message_is_refused(data: st.DataObject) -> None:
    encoded = PEER.encode(data.draw(anything(PEER)))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for torn in (encoded[:cut], encoded + data.draw(st.binary(min_size=1, max_size=8))):
        with pytest.raises(RemoteProtocolError):
            PEER.decode(torn)

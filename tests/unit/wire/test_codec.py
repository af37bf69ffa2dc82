"""The limits of the codec, one by one, in both directions."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, get_args

import pytest

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.wire.codec import (
    COORDINATOR,
    DOCUMENTS,
    PEER,
    Codec,
    decode_document,
    encode_document,
)
from protocol.wire.fields import Range, Recurs, Scalar, Size, as_text
from protocol.wire.messages import (
    MAX_REQUEST_BYTES,
    Ask,
    Bye,
    CoordinatorMessage,
    Epoch,
    Hello,
    NotYet,
    Offer,
    Option,
    Part,
    PeerMessage,
    Refuse,
    Settle,
    SnapshotManifest,
    TensorSpec,
    View,
    Welcome,
)
from protocol.wire.shape import pack

RUN = bytes(range(16))
ASK = Ask(RUN, Part.RESULT, 3, 1)
MANIFEST = SnapshotManifest(
    run=RUN, sender="a", part=Part.RESULT, round_no=1,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1, nova_a=1.0,
    lr=0.1, start_loss=1.0, class_counts=(3, 4),
    tensors=(TensorSpec("params", "w", "float32", (2, 3), bytes(32)),),
)  # fmt: skip
VIEW = View(RUN, "run", Epoch(1, 2), 2, (), ())


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    value: Scalar


@dataclass(frozen=True, slots=True)
class Outer:
    colour: Colour
    inner: Annotated[tuple[Inner, ...], Size(0, 3)]
    maybe: Annotated[float, Range(0.0, 1.0)] | None


@dataclass(frozen=True, slots=True)
class Crowd:
    inner: Annotated[tuple[Inner, ...], Size(0, 3), Recurs(2)]


CROWD: Codec[Crowd] = Codec({1: Crowd}, max_bytes=5000)
TOY: Codec[Outer] = Codec({1: Outer}, max_bytes=1000)


def wire(*fields: Any) -> bytes:
    return pack(fields)


def test_every_message_has_a_code() -> None:
    assert set(PEER) == set(get_args(PeerMessage))
    assert set(COORDINATOR) == set(get_args(CoordinatorMessage))
    assert set(DOCUMENTS) == {SnapshotManifest, View}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "message of 0 bytes"),
        (wire(99), "unknown code 99"),
        (wire(True, RUN), "unknown code True"),
        (wire(), "ends after"),
        (wire(4, RUN, "result", 3), "bad Ask: 3 fields, must be 5"),
        (wire(4, RUN, "result", 3, 1, b"", 1), "bad Ask: 6 fields"),
        (wire(4, RUN, "result", 3, 1, b"") + b"\0", "bad Ask: 1 bytes too many"),
        (wire(4, RUN[:-1], "result", 3, 1, b""), "run has 15 bytes, must be in \\[16, 16\\]"),
        (
            wire(4, "sixteen letters.", "result", 3, 1, b""),
            "run is 'sixteen letters.', must be bytes",
        ),
        (wire(4, RUN, "result", -1, 1, b""), "round_no is -1, must be in"),
        (wire(4, RUN, "result", 2**31 + 1, 1, b""), "round_no is 2147483649"),
        (wire(4, RUN, "result", True, 1, b""), "round_no is True, must be int"),
        (wire(4, RUN, "result", 3.0, 1, b""), "round_no is 3.0, must be int"),
        (wire(4, RUN, "result", None, 1, b""), "round_no is None"),
        (wire(4, RUN, "result", [3], 1, b""), "round_no no plain value"),
        (wire(4, RUN, "gossip", 3, 1, b""), "part is 'gossip'"),
        (wire(5, RUN, 1, 1, 1, "train", math.nan, 0.0), "fraction is nan"),
        (wire(5, RUN, 1, 1, 1, "train", 1.5, 0.0), "fraction is 1.5"),
        (wire(5, RUN, 1, 1, 1, "train", 1, 0.0), "fraction is 1, must be float"),
        (wire(5, RUN, 1, 1, 1, "train", 0.5, math.inf), "eta_s is inf"),
        (wire(5, RUN, 1, 1, 1, "", 0.5, 0.0), "phase has 0 characters"),
        (wire(14, "x" * 401), "reason has 401 characters"),
        (wire(14, "\x1b[2J"), "must be printable"),
        (wire(14, "two\nlines"), "must be printable"),
        (b"\x92\x0e\xa2\xff\xff", "no plain value"),
        (bytes(PEER._max_bytes + 1), "message of 1000513 bytes"),
    ],
)
def test_a_message_out_of_bounds_is_refused_by_name(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        PEER.decode(data)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (replace(ASK, round_no=-1), "cannot send Ask: round_no is -1"),
        (replace(ASK, run=b""), "run has 0 bytes"),
        (replace(ASK, round_no=True), "round_no is True"),
        (NotYet(RUN, 1, 1, 1, "train", math.nan, 0.0), "fraction is nan"),
        (Bye("\ud800"), "must be printable"),
        (Settle(()), "Settle is not a message of this conversation"),
    ],
)
def test_what_we_must_not_send_is_our_own_fault(message: Any, why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        PEER.encode(message)


def test_an_int_may_stand_for_a_float_when_sending() -> None:
    sent = PEER.encode(NotYet(RUN, 1, 1, 1, "train", 1, 0))
    assert sent == PEER.encode(NotYet(RUN, 1, 1, 1, "train", 1.0, 0.0))


def test_a_request_has_a_tighter_limit_than_an_answer() -> None:
    settle = Settle(tuple(Option(f"option{i}", "x" * 500) for i in range(9)))
    with pytest.raises(LocalProtocolError, match=f"bytes, at most {MAX_REQUEST_BYTES}"):
        COORDINATOR.encode(settle)
    options = [[option.key, option.value] for option in settle.options]
    with pytest.raises(RemoteProtocolError, match=f"bytes, at most {MAX_REQUEST_BYTES}"):
        COORDINATOR.decode(wire(34, options))


@pytest.mark.parametrize("value", [True, False, 0, 1, -(2**63), 2**63 - 1, 0.5, -0.0, "", "text"])
def test_an_option_keeps_its_value_and_its_type(value: Scalar) -> None:
    settle = Settle((Option("key", value),))
    (option,) = COORDINATOR.decode(COORDINATOR.encode(settle)).options  # type: ignore[union-attr]  # a Settle
    assert option == Option("key", value)
    assert type(option.value) is type(value)


@pytest.mark.parametrize("value", [2**63, math.inf, "x" * 501, None, b"bytes"])
def test_an_option_that_is_no_scalar_is_refused(value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        COORDINATOR.encode(Settle((Option("key", value),)))
    with pytest.raises(RemoteProtocolError):
        COORDINATOR.decode(wire(34, [["key", value]]))


def test_nested_classes_choices_and_what_may_be_missing_survive() -> None:
    for message in (
        Outer(Colour.BLUE, (Inner(1), Inner("a"), Inner(True)), None),
        Outer(Colour.RED, (), 0.5),
    ):
        assert TOY.decode(TOY.encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        wire(1, "green", [], None),
        wire(1, ["red"], [], None),
        wire(1, "red", [[1], [1], [1], [1]], None),
        wire(1, "red", [[1, 2]], None),
        wire(1, "red", [1], None),
        wire(1, "red", {}, None),
        wire(1, "red", [], 2.0),
    ],
)
def test_a_part_out_of_bounds_refuses_the_whole(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="bad Outer"):
        TOY.decode(data)


def test_items_that_recur_are_the_same_objects_in_every_list() -> None:
    first, second = (CROWD.decode(wire(1, [["a"], [n]])) for n in (1, 2))
    assert first.inner[0] is second.inner[0]
    assert first == Crowd((Inner("a"), Inner(1)))
    assert second == Crowd((Inner("a"), Inner(2)))


def test_items_that_recur_keep_their_types_apart() -> None:
    for value in (1, True, 1.0, 1, True):  # equal to Python, and three different things here
        message = Crowd((Inner(value),))
        assert CROWD.encode(message) == wire(1, [[value]])
        assert type(CROWD.decode(CROWD.encode(message)).inner[0].value) is type(value)


@pytest.mark.parametrize("again", range(2))  # what was refused once is refused again
@pytest.mark.parametrize(
    "data",
    [
        wire(1, [["a"], [[]]]),
        wire(1, [["a"], [{}]]),
        wire(1, [["a"], ["b", "c"]]),
        wire(1, [["a"], "b"]),
        wire(1, [["a"] * 4]),
        wire(1, [["a"]] * 4),
        wire(1, [["a"], ["b"]])[:-1],
        wire(1, [["a"]]) + b"\x01",
        b"\x92\x01\x92\x91\xa1a\xdb\xff\xff\xff\xff",  # a string of 4 GB
        b"\x92\x01\x92\x91\xa1a\xdd\xff\xff\xff\xff",  # an array of 4,294,967,295 items
        b"\x92\x01\x91" + b"\x91" * 4000 + b"\x01",  # nested deeper than any parser goes
        b"\x92\x01\x92\x91\xa1a\xc1",  # a lead byte that msgpack leaves unused
    ],
)
def test_an_item_that_recurs_is_checked_like_any(data: bytes, again: int) -> None:
    with pytest.raises(RemoteProtocolError, match="bad Crowd"):
        CROWD.decode(data)


@pytest.mark.parametrize(
    "message",
    [
        Outer("red", (), None),  # type: ignore[arg-type]
        Outer(Colour.RED, [], None),  # type: ignore[arg-type]
        Outer(Colour.RED, (Outer(Colour.RED, (), None),), None),  # type: ignore[arg-type]
    ],
)
def test_a_part_of_another_type_is_not_sent(message: Outer) -> None:
    with pytest.raises(LocalProtocolError, match="cannot send Outer"):
        TOY.encode(message)


@pytest.mark.parametrize(
    "hint",
    [bytes, tuple[int, ...], tuple[int, int], dict[str, int], Annotated[int, Size(0, 1)], Any],
)
def test_a_class_with_a_field_without_a_limit_is_refused(hint: Any) -> None:
    @dataclass(frozen=True)
    class Loose:
        field: hint

    with pytest.raises(LocalProtocolError, match=r"Loose\.field"):
        Codec({1: Loose}, max_bytes=10)
    with pytest.raises(LocalProtocolError, match="no dataclass"):
        Codec({1: int}, max_bytes=10)


def test_documents_are_told_apart() -> None:
    assert decode_document(SnapshotManifest, encode_document(MANIFEST)) == MANIFEST
    assert decode_document(View, encode_document(VIEW)) == VIEW
    with pytest.raises(RemoteProtocolError, match="a View in the place of a SnapshotManifest"):
        decode_document(SnapshotManifest, encode_document(VIEW))


def test_a_document_has_one_encoding() -> None:
    encoded = encode_document(VIEW)
    count = encoded[0] & 0x0F
    longer = bytes([0xDC, 0, count]) + encoded[1:]  # the same array with a header of three bytes
    assert DOCUMENTS.decode(longer) == VIEW
    with pytest.raises(RemoteProtocolError, match="not in its shortest encoding"):
        decode_document(View, longer)


def test_the_largest_manifest_fits_an_offer() -> None:
    manifest = bytes(1_000_000)
    offer = Offer(RUN, 1, 1, manifest, bytes(64))
    assert PEER.decode(PEER.encode(offer)) == offer
    with pytest.raises(LocalProtocolError):
        PEER.encode(replace(offer, manifest=manifest + b"\0"))


def test_any_words_become_a_text() -> None:
    assert as_text(ValueError("two\n lines\tand \x1b[2J")) == "two lines and ?[2J"
    assert len(as_text("x" * 1000)) == 400
    PEER.encode(Refuse(as_text("\ud800" * 500)))


def test_names_may_be_in_any_script() -> None:
    assert PEER.decode(PEER.encode(Welcome("Žofie", 1))) == Welcome("Žofie", 1)
    assert PEER.decode(PEER.encode(Hello(1, RUN, "名前", bytes(32)))).sender == "名前"  # type: ignore[union-attr]  # a Hello

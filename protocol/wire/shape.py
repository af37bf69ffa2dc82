"""What a value may be on the wire: readers and writers, compiled once from type hints.

`shape_of(Hello)` knows how to read a Hello from a cursor and how to write one as plain lists and
scalars. Both directions check the same limits, those of fields.py. A type without a limit is
refused when the shape is made, so that no message can be without one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Annotated, Final, Protocol, Union, get_args, get_origin, get_type_hints

from msgpack import Unpacker, packb  # type: ignore[import-untyped] # it ships no types
from msgpack.exceptions import UnpackException  # type: ignore[import-untyped] # nor here

from protocol.errors import LocalProtocolError
from protocol.wire.fields import Range, Recurs, Size

__all__ = ["Bad", "Cursor", "Shape", "pack", "shape_of"]

MAX_ARRAY_ITEMS = 1 << 20  # for the parser; every array has a limit of its own
_INT64 = Range(-(2**63), 2**63 - 1)
_FINITE = Range(-math.inf, math.inf)
_OPTION_CHARS = Size(0, 500)  # of a str without a Size: one option's value

# Lead bytes of what is never a scalar: maps, arrays, extensions, and the one that msgpack
# leaves unused. Refused before the parser sees them: it allocates an array by the length claimed.
_NOT_SCALAR: Final = frozenset(
    (*range(0x80, 0xA0), 0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0))
)


def pack(plain: object) -> bytes:
    """Write lists, numbers, strings, bytes and None: the same bytes on every machine."""
    return bytes(packb(plain))


class Bad(Exception):  # noqa: N818 - never leaves the codec, which knows whose fault it is
    """A value is not what its place allows."""


class Cursor:
    """Reads one message from its front to its end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._unpacker = Unpacker(
            max_buffer_size=len(data),
            max_str_len=len(data),
            max_bin_len=len(data),
            max_array_len=MAX_ARRAY_ITEMS,
            max_map_len=0,
            max_ext_len=0,
        )
        self._unpacker.feed(data)

    def array(self) -> int:
        """Number of items of the array that begins here; they follow."""
        try:
            return int(self._unpacker.read_array_header())
        except (UnpackException, ValueError) as error:
            raise Bad(f"no array at byte {self._unpacker.tell()}") from error

    def scalar(self) -> object:
        at = self._unpacker.tell()
        if at >= len(self._data):
            raise Bad(f"ends after {at} bytes")
        if self._data[at] in _NOT_SCALAR:
            raise Bad(f"no plain value at byte {at}")
        try:
            return self._unpacker.unpack()
        except (UnpackException, ValueError) as error:  # ValueError: bytes that are no UTF-8
            raise Bad(f"no plain value at byte {at}") from error

    def whole(self) -> bytes:
        """The bytes of the value that begins here, whatever it is; the next one follows."""
        at = self._unpacker.tell()
        try:
            self._unpacker.skip()  # makes nothing of it, so that no length that is claimed counts
        except (UnpackException, ValueError) as error:
            raise Bad(f"no value at byte {at}") from error
        return bytes(self._data[at : self._unpacker.tell()])

    def end(self) -> None:
        if self._unpacker.tell() != len(self._data):
            raise Bad(f"{len(self._data) - self._unpacker.tell()} bytes too many")


class _Kind(Protocol):
    """One place of a message: how it is read, and how it is written."""

    def take(self, cursor: Cursor) -> object: ...

    def plain(self, value: object) -> object: ...


class _Scalars:
    """A bool, number, string, bytes or None, by exact type: True is no int here."""

    def __init__(self, checks: Mapping[type, Callable[[object], None]]) -> None:
        self._checks = checks
        self._only_float = set(checks) == {float}

    def take(self, cursor: Cursor) -> object:
        value = cursor.scalar()
        self._check(value)
        return value

    def plain(self, value: object) -> object:
        if self._only_float and type(value) is int:  # Python lets an int stand for a float
            value = float(value)
        self._check(value)
        return value

    def _check(self, value: object) -> None:
        check = self._checks.get(type(value))
        if check is None:
            allowed = ", ".join(kind.__name__ for kind in self._checks)
            raise Bad(f"is {value!r:.40}, must be {allowed}")
        check(value)


class _Choice:
    """A member of a StrEnum, sent as its value."""

    def __init__(self, enum: type[StrEnum]) -> None:
        self._enum = enum

    def take(self, cursor: Cursor) -> object:
        value = cursor.scalar()
        try:
            return self._enum(value)  # type: ignore[arg-type]  # whatever it is, it is looked up
        except ValueError as error:
            raise Bad(f"is {value!r:.40}, must be {', '.join(self._enum)}") from error

    def plain(self, value: object) -> object:
        if not isinstance(value, self._enum):
            raise Bad(f"is {value!r:.40}, must be {', '.join(self._enum)}")
        return value.value


class _Items:
    """A tuple of any number of values of one kind."""

    def __init__(self, item: _Kind, size: Size) -> None:
        self._item = item
        self._size = size

    def take(self, cursor: Cursor) -> object:
        count = cursor.array()
        _within(self._size, count, "items")
        take = self._item.take
        return tuple([take(cursor) for _ in range(count)])

    def plain(self, value: object) -> object:
        if not isinstance(value, tuple):
            raise Bad(f"is {value!r:.40}, must be a tuple")
        _within(self._size, len(value), "items")
        return [self._item.plain(item) for item in value]


class _Recurring:
    """A dataclass of which mostly the same ones come again: read once, written once.

    Equal bytes give the same object, so that any number of lists share what they have in common.
    """

    def __init__(self, shape: "Shape", kept: int) -> None:
        self._shape = shape
        self._kept = kept
        self._read = lru_cache(maxsize=kept)(self._read_anew)
        self._written: dict[int, tuple[object, object]] = {}  # by id: the value, and itself plain

    def take(self, cursor: Cursor) -> object:
        return self._read(cursor.whole())

    def _read_anew(self, data: bytes) -> object:
        cursor = Cursor(data)
        value = self._shape.take(cursor)
        cursor.end()
        return value

    def plain(self, value: object) -> object:
        known = self._written.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        plain = self._shape.plain(value)
        if len(self._written) >= self._kept:
            self._written.clear()
        self._written[id(value)] = (value, plain)
        return plain


class Shape:
    """A frozen dataclass: an array of its fields, in their order."""

    def __init__(self, cls: type, kinds: Mapping[str, _Kind]) -> None:
        self.name = cls.__name__
        self._cls = cls
        self._kinds = tuple(kinds.items())

    def take(self, cursor: Cursor) -> object:
        return self.read(cursor, cursor.array())

    def read(self, cursor: Cursor, count: int) -> object:
        """Read the fields of an array of `count` items whose header has been read."""
        if count != len(self._kinds):
            raise Bad(f"{count} fields, must be {len(self._kinds)}")
        values = []
        for name, kind in self._kinds:
            try:
                values.append(kind.take(cursor))
            except Bad as error:
                raise Bad(f"{name} {error}") from error
        return self._cls(*values)

    def plain(self, value: object) -> object:
        if type(value) is not self._cls:
            raise Bad(f"is {value!r:.40}, must be a {self.name}")
        plain = []
        for name, kind in self._kinds:
            try:
                plain.append(kind.plain(getattr(value, name)))
            except Bad as error:
                raise Bad(f"{name} {error}") from error
        return plain


@cache
def shape_of(cls: type) -> Shape:
    """Compile the reader and writer of a dataclass.

    Raises:
        LocalProtocolError: it is none, or a field's type has no limit or cannot be sent.
    """
    if not is_dataclass(cls):
        raise LocalProtocolError(f"{cls.__name__} is no dataclass")
    hints = get_type_hints(cls, include_extras=True)
    kinds = {}
    for name in (field.name for field in fields(cls)):
        try:
            kinds[name] = _kind(hints[name])
        except Bad as error:
            raise LocalProtocolError(f"{cls.__name__}.{name} {error}") from error
    return Shape(cls, kinds)


def _kind(hint: object) -> _Kind:
    base, limit = _split(hint)
    if get_origin(base) is tuple:
        match get_args(base), limit:
            case (item, last), Size() if last is Ellipsis:
                return _Items(_item(item, hint), limit)
            case _:
                raise Bad("must be Annotated[tuple[..., ...], Size(low, high)]")
    if isinstance(base, type) and issubclass(base, StrEnum):
        return _Choice(base)
    if isinstance(base, type) and is_dataclass(base):
        return shape_of(base)
    is_union = get_origin(base) in (Union, UnionType)
    return _Scalars(dict(_check_of(part) for part in (get_args(base) if is_union else (hint,))))


def _item(item: object, of: object) -> _Kind:
    kind = _kind(item)
    recurs = next((mark for mark in get_args(of) if isinstance(mark, Recurs)), None)
    return kind if recurs is None or not isinstance(kind, Shape) else _Recurring(kind, recurs.kept)


def _split(hint: object) -> tuple[object, Range | Size | None]:
    if get_origin(hint) is not Annotated:
        return hint, None
    base, *limits = get_args(hint)
    return base, next((limit for limit in limits if isinstance(limit, Range | Size)), None)


def _check_of(hint: object) -> tuple[type, Callable[[object], None]]:
    """The exact type of a scalar, and what else it must satisfy."""
    base, limit = _split(hint)
    match base, limit:
        case (type() as kind, None) if kind in (bool, NoneType):
            return kind, lambda _value: None
        case (type() as kind, Range() | None) if kind is int:
            return int, _number(limit or _INT64)
        case (type() as kind, Range() | None) if kind is float:
            return float, _number(limit or _FINITE)
        case (type() as kind, Size() | None) if kind is str:
            return str, _string(limit or _OPTION_CHARS)
        case (type() as kind, Size()) if kind is bytes:
            return bytes, _bytes(limit)
        case _:
            raise Bad(f"has a type that cannot be sent, or one without a limit: {hint}")


def _number(limit: Range) -> Callable[[object], None]:
    low, high = limit.low, limit.high

    def check(value: object) -> None:
        # Written so that NaN is refused too; infinities by the second test.
        if not low <= value <= high or not -math.inf < value < math.inf:  # type: ignore[operator]  # the type is checked
            raise Bad(f"is {value!r}, must be in [{low}, {high}] and finite")

    return check


def _string(limit: Size) -> Callable[[object], None]:
    def check(value: object) -> None:
        text = str(value)
        _within(limit, len(text), "characters")
        if not text.isprintable():  # logs and terminals show it: no line breaks, no escapes
            raise Bad(f"is {text!r:.60}, must be printable")

    return check


def _bytes(limit: Size) -> Callable[[object], None]:
    def check(value: object) -> None:
        _within(limit, len(value), "bytes")  # type: ignore[arg-type]  # the type is checked

    return check


def _within(size: Size, count: int, what: str) -> None:
    if not size.low <= count <= size.high:
        raise Bad(f"has {count} {what}, must be in [{size.low}, {size.high}]")

"""A record as JSON and back, by its type hints: a field that is added later is kept as well.

For what this program wrote itself and finds by its digest; what others send has its own codec.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from protocol.errors import DataError
from protocol.jsontext import parse_json

__all__ = ["from_json", "to_json"]

R = TypeVar("R")


def to_json(record: object) -> bytes:
    """Write a frozen dataclass of numbers, text, tuples, mappings and such classes."""
    return json.dumps(_plain(record), separators=(",", ":")).encode()


def from_json(cls: type[R], content: bytes) -> R:
    """Read what `to_json` wrote; a field that it lacks has its default, one that is new to us goes.

    Raises:
        DataError: it is no such record.
    """
    try:
        value: R = _value(cls, parse_json(content))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"no {cls.__name__}: {error}") from None
    return value


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls)


def _value(hint: Any, raw: Any) -> Any:  # noqa: ANN401 - as many types as there are hints
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _value(parts[0], raw)
    if origin in (Union, UnionType):
        return None if raw is None else _value(next(p for p in parts if p is not NoneType), raw)
    if origin is tuple:
        return tuple(_value(parts[0], item) for item in raw)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _value(parts[1], item) for key, item in raw.items()}
    if is_dataclass(hint):
        known = _hints(hint)  # type: ignore[arg-type] # it is a class: nobody hints at a value
        return hint(**{n: _value(known[n], item) for n, item in raw.items() if n in known})  # type: ignore[operator] # likewise
    return raw

"""Strict reading of JSON objects and TOML tables: every field known, present and of its type."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protocol.errors import DataError, OperatorError
from protocol.jsontext import parse_json

__all__ = ["Kind", "match_fields", "parse_object", "unknown_key"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A field's type, and its items' type where it is a list."""

    outer: type
    item: type | None = None

    def fits(self, value: object) -> bool:
        if type(value) is not self.outer:  # not isinstance: True is no count
            return False
        if isinstance(value, list) and self.item is not None:
            return all(type(item) is self.item for item in value)
        return True

    def __str__(self) -> str:
        return self.outer.__name__ + (f" of {self.item.__name__}" if self.item else "")


def parse_object(text: str, what: str) -> dict[str, object]:
    """Read one JSON object.

    Raises:
        DataError: it is not JSON, or not an object.
    """
    try:
        raw = parse_json(text)
    except ValueError as error:
        raise DataError(f"{what} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise DataError(f"{what} is not a JSON object")
    return raw


def match_fields(raw: object, kinds: Mapping[str, Kind], what: str) -> dict[str, object]:
    """Check that an object has exactly these fields, each of its kind.

    Raises:
        DataError: names the field, what it held and what was allowed.
    """
    if not isinstance(raw, dict):
        raise DataError(f"{what} is {raw!r:.60}, not an object")
    for key in kinds:
        if key not in raw:
            raise DataError(f"{what} has no {key!r}")
    for key, value in raw.items():
        if key not in kinds:
            raise DataError(
                f"{what} has an unknown field {key!r:.60}, known are {', '.join(kinds)}"
            )
        if not kinds[key].fits(value):
            raise DataError(f"{what}: {key} is {value!r:.60}, must be a {kinds[key]}")
    return raw


def unknown_key(
    key: str, allowed: Collection[str], what: str, fault: type[OperatorError]
) -> OperatorError:
    """Make the error for a name that a person mistyped, with the nearest right one."""
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    return fault(f"unknown {what} {key!r}; allowed are {', '.join(sorted(allowed))}", hint=hint)

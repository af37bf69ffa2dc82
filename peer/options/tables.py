"""Tables of a TOML file, key by key: what may stand there, and errors that say where and what."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from protocol.errors import ConfigError
from protocol.suggest import of_all

__all__ = ["FLAG", "TEXT", "Allowed", "keyed", "one_of", "take", "whole"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a value may be."""

    said: str
    fits: Callable[[Any], bool]


TEXT = Allowed("a text", lambda v: isinstance(v, str) and 0 < len(v) <= 1000)
FLAG = Allowed("true or false", lambda v: isinstance(v, bool))


def whole(low: int, high: int) -> Allowed:
    return Allowed(
        f"a whole number from {low} to {high}", lambda v: type(v) is int and low <= v <= high
    )


def one_of(*words: str) -> Allowed:
    return Allowed(f"one of {', '.join(words)}", lambda v: v in words)


def keyed(table: object, where: str, keys: Sequence[str] | None) -> Mapping[str, Any]:
    """Take a table with no other keys than these; None allows any.

    Raises:
        ConfigError: it is no table, or has another key.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table, got {table!r:.60}")
    for key in table:
        if keys is not None and key not in keys:
            raise ConfigError(f"{where} has no key {key!r}", hint=of_all(key, keys))
    return table


def take(table: Mapping[str, object], where: str, allowed: Allowed, *, default: T) -> T:
    """Take the value of the last word of `where`, of the type of the default where it has one.

    Raises:
        ConfigError: it is not allowed.
    """
    key = where.rpartition(".")[2]
    if key not in table:
        return default
    value: Any = table[key]
    if not allowed.fits(value):
        raise ConfigError(f"{where} = {value!r:.60}: must be {allowed.said}")
    taken: T = value
    return taken

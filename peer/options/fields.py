"""How a hyperparameter is declared: its default, what is allowed, and one line of help.

The declaration is the only one: it checks a value at construction, converts what a person typed,
and is what `peer methods` prints. Options are frozen dataclasses. A field that is not declared here
must be `field(default_factory=OtherOptions)`: a group, whose options lie flat among the others.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from protocol.errors import ConfigError

__all__ = [
    "LONGEST_S",
    "Only",
    "Options",
    "Rule",
    "Value",
    "build",
    "check",
    "choice",
    "flag",
    "number",
    "rules",
    "shown",
    "values",
    "whole",
]

Value: TypeAlias = str | int | float | bool

_INTERVAL = re.compile(r"([\[(])(\S+), (\S+)([\])])\Z")
LONGEST_S = 31_536_000  # a year, in seconds: nobody means a longer wait
_NOUN: Mapping[type, str] = {float: "a number in ", int: "a whole number in ", str: "one of "}


@dataclass(frozen=True, slots=True)
class Only:
    """Where an option is read at all: while another one of its table has one of these values.

    Attributes:
        option: the other one's name.
        allowed: as in a `Rule`: an interval, or words; "true" for a flag.
    """

    option: str
    allowed: str

    def holds(self, value: Value) -> bool:
        if isinstance(value, bool | str):
            return _in_words(shown(value), self.allowed)
        return _in_interval(value, self.allowed)

    def told(self, section: str = "") -> str:
        """For a person: "share.codec = topk", "solver.dp_noise in (0, inf)"."""
        name = f"{section}.{self.option}" if section else self.option
        if _INTERVAL.match(self.allowed):
            return f"{name} in {self.allowed}"
        return f"{name} = {self.allowed.replace(' | ', ' or ')}"


class Options(Protocol):
    """A frozen dataclass of declared fields and groups, with `check` in `__post_init__`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


_O = TypeVar("_O", bound=Options)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value may be, and what it is for.

    Attributes:
        default: its type is the kind: float, int, bool or str.
        allowed: an interval like "[0, 1)", in which `inf` is open; or words like "sum | mean".
        help: one line.
        only: where it is read; None: always.
    """

    default: Value
    allowed: str
    help: str
    only: Only | None = None

    def allows(self, value: Value) -> bool:
        if type(value) is not type(self.default):
            return False
        if isinstance(value, bool):
            return True
        if isinstance(value, str):
            return _in_words(value, self.allowed)
        return _in_interval(value, self.allowed)

    def read(self, key: str, raw: Value) -> Value:
        """Convert what a person typed, or a file said.

        Raises:
            ConfigError: it is not of the kind, or not allowed.
        """
        value = self._convert(raw)
        if value is None or not self.allows(value):
            raise ConfigError(f"{key} = {raw!s:.60} cannot be used: it must be {self}")
        return value

    def _convert(self, raw: Value) -> Value | None:
        kind = type(self.default)
        if kind is float and type(raw) is int:
            return float(raw)
        if not isinstance(raw, str) or kind is str:
            return raw
        if kind is bool:
            return {"true": True, "false": False}.get(raw.lower())
        try:
            return kind(raw)
        except ValueError:
            return None

    def __str__(self) -> str:
        return _NOUN.get(type(self.default), "") + self.allowed


def _in_words(value: str, words: str) -> bool:
    return value in words.split(" | ")


def _in_interval(value: float, written: str) -> bool:
    interval = _INTERVAL.match(written)
    if interval is None:
        raise ValueError(f"{written!r} is not an interval")
    low, high = float(interval[2]), float(interval[3])
    above = value >= low if interval[1] == "[" else value > low
    below = value <= high if interval[4] == "]" else value < high
    return above and below


def number(default: float, allowed: str, text: str, *, only: Only | None = None) -> Any:  # noqa: ANN401 - as dataclasses.field
    return _declare(Rule(default, allowed, text, only))


def whole(default: int, allowed: str, text: str, *, only: Only | None = None) -> Any:  # noqa: ANN401 - as dataclasses.field
    return _declare(Rule(default, allowed, text, only))


def choice(default: str, allowed: str, text: str, *, only: Only | None = None) -> Any:  # noqa: ANN401 - as dataclasses.field
    return _declare(Rule(default, allowed, text, only))


def flag(default: str, text: str) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Declare a boolean; `default` is "true" or "false", as a person would type it."""
    return _declare(Rule({"true": True, "false": False}[default], "true | false", text))


def _declare(rule: Rule) -> Any:  # noqa: ANN401 - as dataclasses.field
    return field(default=rule.default, metadata={"rule": rule})


def shown(value: Value) -> str:
    """As a manifest and an experiment file write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def rules(options: type[Options]) -> Mapping[str, Rule]:
    """The declaration of each option by name, those of groups included."""
    return dict(_rules(options))


def _rules(options: type[Options]) -> Iterator[tuple[str, Rule]]:
    for declared in fields(options):
        if "rule" in declared.metadata:
            yield declared.name, declared.metadata["rule"]
        else:
            yield from _rules(_group_of(declared.default_factory))


def _group_of(factory: Any) -> type[Options]:  # noqa: ANN401 - typeshed's type of a factory
    if not isinstance(factory, type):
        raise TypeError(f"{factory!r} is not a group of options")
    return factory


def values(options: Options) -> Mapping[str, Value]:
    """The value of each option by name, those of groups included."""
    flat: dict[str, Value] = {}
    for declared in fields(options):
        value = getattr(options, declared.name)
        flat.update({declared.name: value} if "rule" in declared.metadata else values(value))
    return flat


def build(options: type[_O], flat: Mapping[str, Value]) -> _O:
    """The inverse of `values`; what `flat` leaves out takes its default."""
    parts: dict[str, object] = {}
    for declared in fields(options):
        if "rule" not in declared.metadata:
            parts[declared.name] = build(_group_of(declared.default_factory), flat)
        elif declared.name in flat:
            parts[declared.name] = flat[declared.name]
    return options(**parts)


def check(options: Options) -> None:
    """Refuse a value that is not allowed; every options class calls it in `__post_init__`.

    Raises:
        ConfigError: a field is out of bounds.
    """
    for declared in fields(options):
        if "rule" in declared.metadata:
            rule: Rule = declared.metadata["rule"]
            value: Value = getattr(options, declared.name)
            if not rule.allows(value):
                raise ConfigError(f"{declared.name} = {value} cannot be used: it must be {rule}")

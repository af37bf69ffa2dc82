"""The run's manifest: the options that all members share, as a flat mapping of dotted keys.

    [solver]
    name = "sgd"       is the line    solver = sgd
    lr = 0.05          is the line    solver.lr = 0.05

Knows the shape of a line, not its meaning: which options exist is the peer's to say.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from protocol.errors import ConfigError
from protocol.wire.fields import Scalar
from protocol.wire.messages import MAX_OPTIONS, MAX_REQUEST_BYTES, Option

__all__ = [
    "MAX_OPTIONS_BYTES",
    "RUN_SECTIONS",
    "Manifest",
    "conflicts",
    "differences",
    "model_differences",
    "parse_assignment",
]

# The sections of an experiment file that all members share. The others (who runs where, which
# faults, what to draw) are for whoever launches, and no part of the manifest.
RUN_SECTIONS = frozenset(
    {
        "admit",
        "aggregator",
        "method",
        "mix",
        "mixer",
        "model",
        "pace",
        "run",
        "serve",
        "share",
        "solver",
        "train",
        "wire",
    }
)
# Lines of [run] that the view carries, not the manifest.
_OF_THE_VIEW = frozenset({"run.name", "run.founders"})
MAX_OPTIONS_BYTES = MAX_REQUEST_BYTES - 512  # the rest of a Join takes less than 512
_MAX_KEY_CHARS = 64
_MAX_TEXT_CHARS = 500
_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")


class Manifest(Mapping[str, Scalar]):
    """Options by dotted key, in the order of the keys. Immutable."""

    __slots__ = ("_lines",)

    def __init__(self, lines: Mapping[str, Scalar] | None = None) -> None:
        """Check and sort.

        Raises:
            ConfigError: a key or value cannot stand in a manifest, or all of it is too long.
        """
        checked = {key: _checked(key, value) for key, value in sorted((lines or {}).items())}
        self._lines = MappingProxyType(checked)
        self._check_size()

    def __getitem__(self, key: str) -> Scalar:
        return self._lines[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __repr__(self) -> str:
        return f"Manifest({dict(self._lines)!r})"

    @classmethod
    def from_tables(cls, tables: Mapping[str, object]) -> "Manifest":
        """Flatten the run's sections of an experiment file; skip those that are not of the run.

        How a run aggregates may stand in [aggregator], or beside the relay's name in [relay].

        Raises:
            ConfigError: a value is a list or a date, a line stands twice, or the whole is too long.
        """
        lines: dict[str, Scalar] = {}
        for key, value in _flattened("", {k: v for k, v in tables.items() if k in RUN_SECTIONS}):
            if key in lines:
                raise ConfigError(f"{key} stands twice")
            lines[key] = value
        relay = tables.get("relay")
        named = relay.get("aggregator") if isinstance(relay, Mapping) else None
        if named is not None and not isinstance(named, str):
            raise ConfigError(f"[relay] aggregator = {named!r:.60}: it must be a name")
        if named is not None and lines.setdefault("aggregator", named) != named:
            raise ConfigError("[aggregator] and [relay] name different aggregators")
        return cls(lines)

    @classmethod
    def from_options(cls, options: Iterable[Option]) -> "Manifest":
        """Take what a message holds.

        Raises:
            ConfigError: a key stands twice, or a line cannot stand in a manifest.
        """
        lines: dict[str, Scalar] = {}
        for option in options:
            if option.key in lines:
                raise ConfigError(f"{option.key} stands twice")
            lines[option.key] = option.value
        return cls(lines)

    def options(self) -> tuple[Option, ...]:
        return tuple(Option(key, value) for key, value in self._lines.items())

    def over(self, below: Mapping[str, Scalar]) -> "Manifest":
        """These lines, and those of `below` that these do not have."""
        return Manifest({**below, **self._lines})

    def _check_size(self) -> None:
        if len(self._lines) > MAX_OPTIONS:
            raise ConfigError(f"{len(self._lines)} options, at most {MAX_OPTIONS} fit a manifest")
        sizes = {key: _line_bytes(key, value) for key, value in self._lines.items()}
        if sum(sizes.values()) > MAX_OPTIONS_BYTES:
            longest = max(sizes, key=sizes.__getitem__)
            raise ConfigError(
                f"the options take {sum(sizes.values())} bytes, at most {MAX_OPTIONS_BYTES} fit; "
                f"the longest is {longest} with {sizes[longest]}",
                hint="shorten it, or leave options at their default",
            )


def differences(asked: Mapping[str, Scalar], run: Mapping[str, Scalar]) -> list[str]:
    """Name each line that was asked for and that a settled run has otherwise, or has not."""
    return [
        f"{key}: you asked for {_shown(value)}, the run has {_shown(run[key])}"
        if key in run
        else f"{key}: you asked for {_shown(value)}, the run has no such option"
        for key, value in sorted(asked.items())
        if key not in run or not _same(value, run[key])
    ]


def conflicts(asked: Mapping[str, Scalar], fixed: Mapping[str, Scalar]) -> list[str]:
    """Name the lines that differ while the run is not settled: what it lacks may still come."""
    return differences({key: value for key, value in asked.items() if key in fixed}, fixed)


def model_differences(ours: tuple[bytes, bytes], run: tuple[bytes, bytes]) -> str:
    """Say which digest of a node's model, (layout, start), is not the run's; empty if both are."""
    (schema, init), (run_schema, run_init) = ours, run
    if schema != run_schema:
        return (
            f"schema: the shared tensors of your model have other names, shapes or types "
            f"({_short(schema)}) than the run's ({_short(run_schema)})"
        )
    if init != run_init:
        return (
            f"init: your initial model ({_short(init)}) is not the run's "
            f"({_short(run_init)}): another version of torch, or another kind of processor"
        )
    return ""


def _short(digest: bytes) -> str:
    return digest.hex()[:8]


def parse_assignment(text: str) -> tuple[str, Scalar]:
    """Read KEY=VALUE as typed: true, false, a number, or else text (quotes keep text text).

    Raises:
        ConfigError: it has no '=', or cannot stand in a manifest.
    """
    key, sign, typed = text.partition("=")
    key, typed = key.strip(), typed.strip()
    if not sign or not key:
        raise ConfigError(f"{text!r} is not KEY=VALUE", hint="for example: solver.lr=0.05")
    return key, _checked(key, _scalar(typed))


def _scalar(typed: str) -> Scalar:
    if typed in {"true", "false"}:
        return typed == "true"
    if len(typed) >= 2 and typed[0] == typed[-1] and typed[0] in "\"'":
        return typed[1:-1]
    for kind in (int, float):
        try:
            return kind(typed)
        except ValueError:
            continue
    return typed


def _flattened(prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, Scalar]]:
    for name, value in table.items():
        key = f"{prefix}.{name}" if prefix else name
        if key in _OF_THE_VIEW:
            continue
        if isinstance(value, Mapping):
            yield from _flattened(key, value)
        elif isinstance(value, bool | int | float | str):
            yield prefix if prefix and name == "name" else key, value
        else:
            raise ConfigError(
                f"{key} is a {type(value).__name__}: an option is true or false, a number, or text"
            )


def _checked(key: str, value: Scalar) -> Scalar:
    if len(key) > _MAX_KEY_CHARS or not _KEY.match(key):
        raise ConfigError(
            f"option {key!r} cannot be used: words of letters, digits, '_' and '-', joined by "
            f"'.', at most {_MAX_KEY_CHARS} characters"
        )
    match value:
        case bool():
            pass
        case str() if len(value) > _MAX_TEXT_CHARS:
            raise ConfigError(f"{key} has {len(value)} characters, at most {_MAX_TEXT_CHARS} fit")
        case int() if not -(2**63) <= value < 2**63:
            raise ConfigError(f"{key} = {value} does not fit 64 bits")
        case float() if not math.isfinite(value):
            raise ConfigError(f"{key} = {value} is not a finite number")
        case _:
            pass
    return value


def _same(left: Scalar, right: Scalar) -> bool:
    """Equal in meaning: 1 is 1.0, but neither is true nor "1"."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _shown(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line_bytes(key: str, value: Scalar) -> int:
    """What a line takes in a message, or a little less: 3 for a string's head, 1 for the pair's."""
    body = 3 + len(value.encode()) if isinstance(value, str) else 9
    return 1 + 3 + len(key) + body

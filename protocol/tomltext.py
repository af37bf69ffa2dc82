"""A TOML file of a person's, read whole: its text and its tables, and nothing that breaks a reader.

TOML itself bounds neither how deep tables nest nor, as Python reads it, how long a number is.
Nothing of ours is near these bounds, and whoever walks or prints what stands here may rely on them.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from protocol.errors import ConfigError

__all__ = ["MAX_DEPTH", "MAX_FILE_BYTES", "parse_toml", "read_toml"]

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 16  # of tables and lists in each other


def read_toml(path: Path) -> tuple[str, Mapping[str, object]]:
    """Read a file of options.

    Raises:
        ConfigError: it cannot be read, is too long, or is nothing that `parse_toml` takes.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is over {MAX_FILE_BYTES} bytes: not an experiment file")
    try:
        text = raw.decode()
        return text, parse_toml(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path} cannot be used: {error}") from None


def parse_toml(text: str) -> Mapping[str, object]:
    """Read tables.

    Raises:
        ValueError: it is not TOML; or tables nest deeper than `MAX_DEPTH`, a whole number does not
            fit 64 bits, or a text holds a NUL, which no name and no path can.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    for key, value in _values(tables):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"{key:.80} is a whole number that does not fit 64 bits")
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"{key:.80} holds a NUL character")
    return tables


_TOO_DEEP = f"tables or lists nest deeper than {MAX_DEPTH}"


def _values(tables: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Every key and every single value, with the dotted key that it stands under."""
    nested: list[tuple[str, object, int]] = [("", tables, 0)]
    while nested:
        key, value, depth = nested.pop()
        if depth > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        if isinstance(value, Mapping):
            yield from (("a key", name) for name in value)
            nested += [(f"{key}.{n}".lstrip("."), part, depth + 1) for n, part in value.items()]
        elif isinstance(value, list):
            nested += [(key, part, depth + 1) for part in value]
        else:
            yield key, value

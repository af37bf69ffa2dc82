"""A TOML file of ours, read whole: its text and its tables."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from protocol.errors import ConfigError

__all__ = ["MAX_FILE_BYTES", "read_toml"]

MAX_FILE_BYTES = 1 << 20


def read_toml(path: Path) -> tuple[str, Mapping[str, object]]:
    """Read a file of options.

    Raises:
        ConfigError: it cannot be read, is too long, or is not TOML.
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
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError
        raise ConfigError(f"{path} is not TOML: {error}") from None

"""The faults of a file: of an experiment, or of one that holds nothing but `[[fault]]` tables."""

from pathlib import Path

from peer.faults.reading import read_faults
from peer.faults.table import Fault
from protocol.errors import ConfigError, OperatorError
from protocol.tomltext import read_toml

__all__ = ["load_faults"]


def load_faults(path: Path) -> tuple[Fault, ...]:
    """Read them; whatever else an experiment file says is for others to check.

    Raises:
        ConfigError: it cannot be read, is not TOML, has no `[[fault]]` table, or one that is not
            allowed; the text names the file, the table and the key.
    """
    _, tables = read_toml(path)
    if "fault" not in tables:
        raise ConfigError(f"{path} has no [[fault]] table", hint="docs/faults.md shows some")
    try:
        return read_faults(tables["fault"])
    except OperatorError as error:
        raise ConfigError(f"{path}: {error.args[0]}", hint=error.hint) from None

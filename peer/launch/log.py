"""launch.log: what every process said, each line with its name in front. Never ends a launch."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from peer.launch.processes import Line
from protocol.errors import ConfigError

__all__ = ["LaunchLog"]


class LaunchLog:
    """Writes lines; open it in a `with`. `tell` hears once that the disk takes no more."""

    def __init__(self, path: Path, *, width: int, tell: Callable[[str], None]) -> None:
        try:
            self._file = path.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
        self._width, self._tell, self._path = width, tell, path
        self._whole = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        except OSError as failure:
            self._fail(failure)

    def write(self, line: Line) -> str:
        """Write a line, and return it as written."""
        text = f"{line.name:<{self._width}} | {line.text}"
        try:
            self._file.write(f"{text}\n")
        except OSError as error:
            self._fail(error)
        return text

    def _fail(self, error: OSError) -> None:
        if self._whole:
            self._tell(f"{self._path} has gaps: {error.strerror or error}")
        self._whole = False

"""Bytes as a row of decisions: the same bytes are the same test, wherever they came from.

Small on purpose, so that a fuzzer's mutations stay local, and of our own, so that the corpus can be
replayed where no fuzzer is installed. Past the end everything is zero.
"""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Feed"]

T = TypeVar("T")


class Feed:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._data)

    def byte(self) -> int:
        return self.number(1)

    def number(self, num_bytes: int) -> int:
        return int.from_bytes(self.take(num_bytes))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.byte() % len(options)]

    def take(self, num_bytes: int) -> bytes:
        """The next bytes, fewer at the end."""
        taken = self._data[self._at : self._at + num_bytes]
        self._at += num_bytes
        return taken

    def block(self) -> bytes:
        """Up to 1023 bytes, by a length of two that stands before them."""
        return self.take(self.number(2) % 1024)

    def rest(self) -> bytes:
        return self.take(len(self._data))

"""What can befall messages on their way: which faults are in force, and what they come to."""

import math
from dataclasses import dataclass
from random import Random
from typing import Protocol

__all__ = ["CALM", "Line", "Way", "Weather", "flipped"]


@dataclass(frozen=True, slots=True)
class Way:
    """What happens to messages in one direction."""

    is_cut: bool = False
    loss: float = 0.0  # share of the messages, in [0, 1]
    corrupt: float = 0.0  # share of the messages, in [0, 1]
    delay_s: float = 0.0  # of each message
    jitter_s: float = 0.0  # at most so much more, evenly drawn
    mbit: float = math.inf  # megabits a second

    @property
    def holds_up(self) -> bool:
        return self.delay_s > 0.0 or self.jitter_s > 0.0 or self.mbit != math.inf


CALM = Way()


class Weather(Protocol):
    def ways(self, key: bytes, now_s: float) -> tuple[Way, Way]:
        """What is in force between this node and the one of that CURVE key: there, and back."""


class Line:
    """One direction: each message's own time on its way, in order."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._free_s = -math.inf  # when the last byte so far has left
        self._last_s = -math.inf

    def due_s(self, way: Way, num_bytes: int, now_s: float) -> float:
        """When a message of that size that leaves now will be there."""
        self._free_s = max(self._free_s, now_s) + num_bytes * 8 / (way.mbit * 1e6)
        drawn_s = self._chance.uniform(0.0, way.jitter_s) if way.jitter_s else 0.0
        self._last_s = max(self._last_s, self._free_s + way.delay_s + drawn_s)
        return self._last_s


def flipped(frame: bytes, chance: Random) -> bytes:
    """One bit of it is another."""
    if not frame:
        return b""
    changed = bytearray(frame)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)

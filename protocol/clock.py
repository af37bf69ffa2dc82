"""Time as an argument: the one place that reads a clock.

Machines take `now_s`, an instant in seconds on a monotonic scale without meaning of its own.
"""

import time
from typing import Protocol

__all__ = ["Clock", "MonotonicClock", "wall_s"]


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds on a scale that never goes back."""


class MonotonicClock:
    """The machine's own, which `sleep` of the host does not advance."""

    def now_s(self) -> float:
        return time.monotonic()


def wall_s() -> float:
    """Seconds since 1970 UTC, for records that people read; never for a decision."""
    return time.time()  # noqa: TID251 - the one place that may

"""Virtual time: what happens when, in an order that one seed decides."""

import heapq
from collections.abc import Callable
from itertools import count

from protocol.errors import LocalProtocolError

__all__ = ["Agenda"]


class Agenda:
    """Instants in seconds and what is to happen then; ties in the order in which they were made."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._order = count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def now_s(self) -> float:
        """The virtual clock: the instant of what happens now."""
        return self._now_s

    def at(self, at_s: float, event: Callable[[], None]) -> None:
        """Have something happen, not before now.

        Raises:
            LocalProtocolError: it is asked for in the past.
        """
        if at_s < self._now_s:
            raise LocalProtocolError(f"asked for {at_s} s at {self._now_s} s")
        heapq.heappush(self._heap, (at_s, next(self._order), event))

    @property
    def is_empty(self) -> bool:
        return not self._heap

    def step(self) -> bool:
        """Let the next thing happen; False when there is none."""
        if not self._heap:
            return False
        self._now_s, _, event = heapq.heappop(self._heap)
        event()
        return True

"""How threads hand things over: a queue, and a wake for the one that polls."""

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from protocol.transport.base import Wake

__all__ = ["Inbox"]

T = TypeVar("T")


class Inbox(Generic[T]):
    """Any thread puts; the one that polls `wake` drains."""

    def __init__(self, wake: Wake) -> None:
        self.wake = wake
        self._items: SimpleQueue[T] = SimpleQueue()

    def put(self, item: T) -> None:
        self._items.put(item)
        self.wake.set()

    def drain(self) -> Iterator[T]:
        """What is there, in order; clears the wake first, so that nothing put later is missed."""
        self.wake.clear()
        while True:
            try:
                yield self._items.get_nowait()
            except Empty:
                return

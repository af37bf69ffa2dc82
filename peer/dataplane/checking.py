"""Digests of one body, computed behind its frontier.

Parts of a body are hashed in the order in which they are handed over, so that a tensor's hash is
nearly there when its last byte is. A piece that has just come is hashed at once, while it is in the
cache and the next one is on its way: to hand it to another thread costs half as much as to hash it.
What was here before, however large, is copied and hashed by threads that do nothing else.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Protocol, TypeAlias

from protocol.wire.digest import Hasher
from protocol.wire.layout import Place
from protocol.wire.messages import MAX_PIECE_BYTES
from protocol.wire.pulling import Verify

__all__ = ["Checker", "Copy", "Telling", "Verdicts", "Workers"]

COPY_BYTES = 1 << 20  # at a time: other threads want the interpreter's lock too

Copy: TypeAlias = tuple[Place, memoryview]  # where bytes belong, and where they are
Verdicts: TypeAlias = list[tuple[int, bool]]  # a tensor's number, and whether it has its digest


class Workers(Protocol):
    """Threads that do one thing after another."""

    def submit(self, work: Callable[[], None], /) -> object: ...


class Telling:
    """Workers whose errors are told: bugs of ours, of which nobody would hear otherwise."""

    def __init__(self, workers: Workers, tell: Callable[[BaseException], None]) -> None:
        """`tell` is called in a thread of the workers'."""
        self._workers = workers
        self._tell = tell

    def submit(self, work: Callable[[], None], /) -> None:
        def told() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - told to the node, which ends
                self._tell(error)

        self._workers.submit(told)


class Checker:
    """Of one body. `tell` is called in the thread that verifies, or in one of the executor's."""

    def __init__(
        self,
        body: memoryview,
        *,
        executor: Workers,
        tell: Callable[[Verdicts], None],
        at_once_bytes: int = MAX_PIECE_BYTES,
    ) -> None:
        """Begin.

        Args:
            body: what is being received.
            executor: does what is large, or waits for something large.
            tell: is given verdicts.
            at_once_bytes: so much is hashed by whoever hands it over.
        """
        self._body = body
        self._executor = executor
        self._tell = tell
        self._at_once_bytes = at_once_bytes
        self._hasher = Hasher()
        self._lock = Lock()  # of what is to be done
        self._hands = Lock()  # held while the body is touched
        self._is_closed = False
        self._todo: deque[Copy | Verify] = deque()
        self._is_running = False

    def copy(self, copies: Iterable[Copy]) -> None:
        """Bring bytes that are held elsewhere to their places, before what is hashed after this."""
        self._take(copies)

    def verify(self, parts: Sequence[Verify]) -> None:
        with self._lock:
            is_idle = not self._is_running
        if is_idle and _num_bytes(parts) <= self._at_once_bytes:
            self._work(parts)
        else:
            self._take(parts)

    def close(self) -> None:
        """Do nothing more; from now on the body is left alone."""
        self._is_closed = True
        with self._hands:
            self._todo.clear()

    def _take(self, items: Iterable[Copy] | Iterable[Verify]) -> None:
        with self._lock:
            self._todo.extend(items)
            if self._is_running or not self._todo:
                return
            self._is_running = True
        self._executor.submit(self._run)

    def _run(self) -> None:
        """Work until nothing is left to do."""
        while True:
            with self._lock:
                items = tuple(self._todo)
                self._todo.clear()
                self._is_running = bool(items)
            if not items:
                return
            self._work(items)

    def _work(self, items: Sequence[Copy | Verify]) -> None:
        with self._hands:
            verdicts = [v for item in items if (v := self._do(item)) is not None]
        if verdicts:
            self._tell(verdicts)

    def _do(self, item: Copy | Verify) -> tuple[int, bool] | None:
        if self._is_closed:
            return None
        if not isinstance(item, Verify):
            self._bring(*item)
            return None
        self._hasher.update(self._body[item.place.start : item.place.end])
        if not item.is_last:
            return None
        found = self._hasher.digest()
        self._hasher = Hasher()
        return item.tensor, found == item.digest

    def _bring(self, place: Place, source: memoryview) -> None:
        for at in range(0, len(source), COPY_BYTES):
            if self._is_closed:
                return
            end = min(at + COPY_BYTES, len(source))
            self._body[place.start + at : place.start + end] = source[at:end]


def _num_bytes(parts: Iterable[Verify]) -> int:
    return sum(part.place.end - part.place.start for part in parts)

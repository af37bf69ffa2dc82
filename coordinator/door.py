"""The coordinator's port: what comes in, and whom the transport has shut out for what it sent."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.refusals import Offence
from protocol.transport.base import Listener, Wake

__all__ = ["Door", "Inbox"]

MAX_WAITING = 1024  # offences that nobody has taken yet; the transport refuses their keys already
MAX_REASON_CHARS = 200


class Inbox:
    """Offences on their way from a thread of the transport's to the shell's."""

    def __init__(self, wake: Wake) -> None:
        self.wake = wake
        self._waiting: deque[Offence] = deque(maxlen=MAX_WAITING)

    def tell(self, key: bytes | None, reason: str) -> None:
        """Note that a key was shut out; None, where nobody can say whose it was, is let be."""
        if key is not None:
            self._waiting.append(Offence(key, reason[:MAX_REASON_CHARS]))
            self.wake.set()

    def take(self) -> Sequence[Offence]:
        """All that wait, oldest first."""
        self.wake.clear()  # before they are taken: one that comes now is seen by the next look
        return [self._waiting.popleft() for _ in range(len(self._waiting))]


@dataclass(frozen=True, slots=True)
class Door:
    listener: Listener  # bound
    offences: Inbox  # of keys that it has shut out

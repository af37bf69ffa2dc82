"""What carries frames between nodes: listeners, callers, and a poller over both.

A frame list is a header (one encoded message) and at most one payload. A transport authenticates
keys and moves frames; it knows no message. Each object belongs to the thread that made it, except
`Wake`, which any thread may set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

__all__ = [
    "Admits",
    "Arrival",
    "Caller",
    "CallerEvent",
    "Listener",
    "Offended",
    "Pollable",
    "Poller",
    "Sent",
    "Transport",
    "Wake",
]

# Raw 32-byte CURVE key -> may it connect? Called from a thread of the transport's; an exception
# counts as no.
Admits: TypeAlias = Callable[[bytes], bool]
# Told of a key whose connections were cut and that is refused from now on, or None where it cannot
# be said whose it was; and why. Called from a thread of the transport's.
Offended: TypeAlias = Callable[[bytes | None, str], None]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message at a listener."""

    route: bytes  # answers go back by it; new after each reconnect
    key: bytes  # the sender's authenticated 32-byte key
    header: bytes
    payload: bytes | None  # clients send none: anything here is for the machine to refuse


class CallerEvent(Enum):
    """What a caller's connection did, told by `Caller.receive` in between frames."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"  # it goes on trying, backing off
    REFUSED = "refused"  # our key is not (yet) admitted there; it goes on trying, backing off


class Sent(Enum):
    """What became of a send at a listener."""

    YES = "yes"
    FULL = "full"  # the route's pipe is at its high-water mark: try later
    GONE = "gone"  # no such route any more


class Listener(Protocol):
    @property
    def address(self) -> str:
        """Where it is bound, with the port that the system chose: tcp://0.0.0.0:40123."""

    def receive(self) -> Arrival | None:
        """The next message, or None at once if there is none."""

    def send(self, route: bytes, header: bytes, payload: memoryview | None = None) -> Sent:
        """Never blocks. The payload must stay unchanged until it has left: snapshots do."""

    def hang_up(self, key: bytes) -> None:
        """Cut the connections of a key that is not to be heard any more."""

    def pardon(self, key: bytes) -> None:
        """Hear a key again that was shut out for what it sent."""

    def close(self) -> None: ...


class Caller(Protocol):
    """One connection to one listener, kept up by the transport."""

    def send(self, header: bytes) -> bool:
        """Queue a message; False when not connected or full. Never blocks."""

    def receive(
        self, into: Callable[[bytes], memoryview | None] | None = None
    ) -> bytes | tuple[bytes, int] | CallerEvent | None:
        """The next header, or (header, payload bytes written), or an event, or None at once.

        `into` is called with the header of a message that has a payload and returns where the
        payload belongs, or None (as without `into`) to drop it, which is told as a size of 0. A
        payload that does not fit exactly is told as a size of -1; what it wrote is not to be used.
        """

    def close(self) -> None: ...


class Wake(Protocol):
    """Something that a poller waits on and any thread may set."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


Pollable: TypeAlias = Listener | Caller | Wake | int  # an int is a file descriptor, for reading


class Poller(Protocol):
    def add(self, item: Pollable) -> None: ...

    def discard(self, item: Pollable) -> None: ...

    def poll(self, timeout_s: float | None) -> Sequence[Pollable]:
        """What is ready; empty when the time ran out. None waits without a bound."""


class Transport(Protocol):
    def listen(
        self, bind: str, *, admits: Admits, offended: Offended = lambda _key, _reason: None
    ) -> Listener:
        """Bind, e.g. to tcp://0.0.0.0:0.

        Args:
            bind: where.
            admits: which keys may connect.
            offended: is told of a key that was shut out for what it sent.

        Raises:
            AddressError: the address is in use or not of this machine.
        """

    def call(self, address: str, *, server_key: bytes) -> Caller:
        """Connect in the background, and again whenever the connection is lost.

        Raises:
            AddressError: the address cannot be one.
        """

    def poller(self) -> Poller: ...

    def wake(self) -> Wake: ...

    def close(self) -> None:
        """Close everything that it made; bounded in time."""

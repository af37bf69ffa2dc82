"""From a snapshot that is here and a step to another one: every tensor computed, and checked.

What comes out is the whole snapshot that its sender's manifest names, or nothing that is used.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from peer.dataplane.bodies import ServedBody
from peer.dataplane.checking import Workers
from peer.work import SnapshotRef
from protocol.errors import KinfolkError, RemoteProtocolError
from protocol.steps import advance
from protocol.wire.codec import decode_document
from protocol.wire.digest import digest
from protocol.wire.layout import Layout
from protocol.wire.messages import SnapshotManifest

__all__ = ["Rebuild", "Rebuilder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """What a pulled step leads to."""

    base: SnapshotRef  # where it goes on from
    manifest: SnapshotManifest  # of the whole
    path: Path  # where its body goes


class _Hands:
    """Held while a body is written; once they are off it, it is left alone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._are_off = False

    def off(self) -> None:
        """From now on; a tensor that is being written is waited for."""
        self._are_off = True
        with self._lock:
            pass

    @contextmanager
    def on(self) -> Iterator[bool]:
        """Whether there is still something to be written, for as long as that takes."""
        with self._lock:
            yield not self._are_off


class Rebuilder:
    """The steps that are being carried out. It lives in the puller's thread, and works in others'.

    A ticket is that of the pull which the step came by.
    """

    def __init__(self, executor: Workers, call_back: Callable[[Callable[[], None]], None]) -> None:
        """Begin with nothing.

        Args:
            executor: computes.
            call_back: has a function called in this object's thread, from any other.
        """
        self._executor = executor
        self._call_back = call_back
        self._tickets: dict[int, _Hands] = {}

    def cancel(self, ticket: int) -> None:
        """Tell nothing more of this one, and leave its bodies alone."""
        if (hands := self._tickets.pop(ticket, None)) is not None:
            hands.off()

    def close(self) -> None:
        for ticket in tuple(self._tickets):
            self.cancel(ticket)

    def begin(
        self,
        ticket: int,
        order: Rebuild,
        step: SnapshotManifest,
        came: memoryview,
        into: memoryview,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """Carry out a step that has come.

        Args:
            ticket: of its pull.
            order: from where to where.
            step: its manifest, of the run's schema.
            came: its body, verified.
            into: the whole body; nobody else may touch it meanwhile.
            tell: called back with why it failed; with an empty reason when every tensor is what
                the manifest of the whole says. Not after a cancel.
        """
        hands = self._tickets[ticket] = _Hands()

        def done(fault: str) -> None:
            if self._tickets.get(ticket) is hands:
                del self._tickets[ticket]
                tell(fault)

        def work() -> None:
            fault = _rebuilt(order, step, came, into, hands)
            self._call_back(lambda: done(fault))

        self._executor.submit(work)


def _rebuilt(
    order: Rebuild, step: SnapshotManifest, came: memoryview, into: memoryview, hands: _Hands
) -> str:
    try:
        _carry_out(order, step, came, into, hands)
    except (KinfolkError, OSError) as error:
        return str(error)
    except MemoryError as error:
        return f"no memory to carry out a step: {error}"
    return ""


def _carry_out(
    order: Rebuild, step: SnapshotManifest, came: memoryview, into: memoryview, hands: _Hands
) -> None:
    """Compute and check one tensor after another, while the hands may.

    Raises:
        KinfolkError: the base is not there, the step is none, or it leads elsewhere.
        OSError: the base cannot be read.
    """
    before = decode_document(SnapshotManifest, order.base.manifest).tensors
    here, there = Layout.of(before), Layout.of(order.manifest.tensors)
    steps = Layout.of(step.tensors)
    if here.places != there.places:
        raise RemoteProtocolError("a step between results of different layouts")
    base = ServedBody(
        Path(order.base.path), offset=order.base.offset, num_bytes=here.body_bytes
    ).piece(0, here.body_bytes)
    for spec, moved, place, at in zip(
        order.manifest.tensors, step.tensors, there.places, steps.places, strict=True
    ):
        with hands.on() as may:
            if not may:
                return
            new = into[place.start : place.end]
            advance(spec, moved, base[place.start : place.end], came[at.start : at.end], new)
            if digest(new) != spec.digest:
                raise RemoteProtocolError(f"the step of {spec.name} does not lead to its digest")

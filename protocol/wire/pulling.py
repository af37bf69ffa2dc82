"""The taking side of one bulk transfer: what to ask for, where each piece belongs, when to give up.

FETCHING --all bytes in--> CHECKING --all tensors verified--> DONE
    |                          |
    +--------------------------+--too many resumes, Err, a wrong digest, cancelled--> DONE

Tensors that are held already are not asked for: what is missing makes spans of the body, fetched
one after another. Pieces are taken in order only; what is in stays in. After a hole, a stall or a
reconnect the rest is asked for from the first byte that is missing. Bytes are handed out for
hashing as they come. Nothing here depends on what the other side claims: sizes come from the
layout of a manifest whose schema is the run's. No clock, no socket, no thread, no buffer.
"""

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from protocol.errors import RemoteProtocolError
from protocol.wire.layout import Layout, Place
from protocol.wire.link_effects import Send
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    MIN_PIECE_BYTES,
    Cancel,
    Credit,
    Data,
    Err,
    Get,
    SnapshotManifest,
)

__all__ = ["Complete", "Effect", "Failed", "Pull", "Verify"]

WINDOW = 6  # pieces under way; returned every half window
STALL_S = 5.0  # without a piece: ask again, for smaller ones
GIVE_UP_S = 60.0  # without a piece, connected or not
FREE_RESUMES = 8  # each further one must have been paid for by a piece
GETS_KEPT = 4  # whose late pieces are still taken
GAP_BYTES = MAX_PIECE_BYTES  # so much is fetched again rather than asked around: a round trip


@dataclass(frozen=True, slots=True)
class Verify:
    """Hash these bytes, the next ones of their tensor; after the last ones, call `verified`."""

    tensor: int  # index in the manifest
    place: Place  # in the body
    digest: bytes  # of the whole tensor
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class Complete:
    """Every byte is in and every tensor is what the manifest says."""


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


Effect: TypeAlias = Send | Verify | Complete | Failed


class _Stage(Enum):
    FETCHING = "fetching"
    CHECKING = "checking"
    DONE = "done"


class Pull:
    """Feed it what happens; carry out what it returns, in order."""

    def __init__(
        self,
        manifest: SnapshotManifest,
        *,
        digest: bytes,
        xids: Iterator[int],
        now_s: float,
        held: Container[int] = (),
    ) -> None:
        """Begin disconnected; call `begin` next.

        Args:
            manifest: of the run's schema; the caller has checked it.
            digest: the snapshot's name.
            xids: numbers that no other transfer on the same connection uses.
            now_s: the instant.
            held: tensors whose bytes the caller has; it puts those that `spans` leave out into
                their places, and only then has them hashed.

        Raises:
            LayoutError: the manifest cannot be laid out.
        """
        self.layout = Layout.of(manifest.tensors)
        self.spans = tuple(_missing(self.layout, held))
        self._spans = deque(self.spans)  # not yet in; the first one is under way
        self.num_bytes = 0  # received
        # whatever lies before it is in place
        self._frontier = self._spans[0].start if self._spans else self.layout.body_bytes
        self._handed_to = 0  # whatever lies before it was handed out for hashing
        self._tensors = manifest.tensors
        self._digest = digest
        self._xids = xids
        self._stage = _Stage.FETCHING
        self._gets: dict[int, Get] = {}  # oldest first; the last one is under way
        self._is_connected = False
        self._piece_bytes = MAX_PIECE_BYTES
        self._resumes = 0
        self._pieces = 0
        self._pieces_before = 0  # when it was last asked
        self._owed = 0  # credits to be returned
        self._next_to_verify = 0
        self._num_verified = 0
        self._fed_at_s = now_s  # a piece came
        self._asked_at_s = now_s

    @property
    def is_done(self) -> bool:
        return self._stage is _Stage.DONE

    @property
    def due_s(self) -> float | None:
        """When `wake` has something to do; None while verification is all that is left."""
        if self._stage is not _Stage.FETCHING:
            return None
        give_up_s = self._fed_at_s + GIVE_UP_S
        return min(give_up_s, self._stalled_at_s()) if self._is_connected else give_up_s

    def begin(self) -> tuple[Effect, ...]:
        """Hand out what need not come; a body of which nothing need come is only checked."""
        return self._advance()

    def connected(self, now_s: float) -> tuple[Effect, ...]:
        if self._gets and self._pieces == self._pieces_before:
            self._ask_for_less()  # a frame that takes too long makes heartbeats cut the link
        self._is_connected = True
        self._gets.clear()
        return self._resume(now_s)

    def disconnected(self) -> None:
        self._is_connected = False

    def place(self, data: Data) -> Place | None:
        """Where the payload of this header belongs; None if it is not wanted."""
        get = self._gets.get(data.xid)
        if get is None or self._stage is not _Stage.FETCHING:
            return None
        if data.offset != self._frontier or not get.offset <= data.offset < get.end:
            return None
        return Place(data.offset, min(data.offset + get.piece_bytes, get.end))

    def receive(self, message: Data | Err, num_bytes: int, now_s: float) -> tuple[Effect, ...]:
        """Take one message, and how many bytes of payload were put into its place.

        Raises:
            RemoteProtocolError: the payload is longer or shorter than was asked for.
        """
        get = self._gets.get(message.xid)
        if get is None or self._stage is not _Stage.FETCHING:
            return ()
        if isinstance(message, Err):
            return self._fail(f"refused: {message.reason}")
        place = self.place(message)
        if place is None:
            return self._unwanted(get, message.offset, now_s)
        if num_bytes != place.end - place.start:
            raise RemoteProtocolError(f"a piece that is not of {place.end - place.start} bytes")
        self.num_bytes += num_bytes
        self._pieces += 1
        self._fed_at_s = now_s
        if place.end < self._spans[0].end:
            self._frontier = place.end
            return *self._return_credit(get), *self._advance()
        self._spans.popleft()
        self._frontier = self._spans[0].start if self._spans else self.layout.body_bytes
        return *(self._ask(now_s) if self._spans else ()), *self._advance()

    def verified(self, *, is_good: bool, tensor: int) -> tuple[Effect, ...]:
        """The digest of a tensor was computed: it is, or is not, the manifest's."""
        if self._stage is _Stage.DONE:
            return ()
        if not is_good:
            return self._fail(f"tensor {self._tensors[tensor].name} does not have its digest")
        self._num_verified += 1
        return self._settle()

    def wake(self, now_s: float) -> tuple[Effect, ...]:
        """Time has passed: ask again, or give up."""
        if self._stage is not _Stage.FETCHING:
            return ()
        if now_s >= self._fed_at_s + GIVE_UP_S:
            return self._fail(f"no piece for {now_s - self._fed_at_s:.0f} s")
        if self._is_connected and now_s >= self._stalled_at_s():
            self._ask_for_less()
            return self._resume(now_s)
        return ()

    def cancel(self) -> tuple[Effect, ...]:
        """It is not wanted any more."""
        return self._end()

    def fail(self, reason: str) -> tuple[Effect, ...]:
        """It cannot go on: they broke the rules, or the buffer cannot be written."""
        return self._fail(reason)

    def _advance(self) -> tuple[Effect, ...]:
        """Hand out what lies before the frontier; without a span left, all of it does."""
        if not self._spans:
            self._stage = _Stage.CHECKING
        return *self._hand_out(), *self._settle()

    def _hand_out(self) -> Iterator[Verify]:
        """What of each tensor lies between what was handed out and the frontier."""
        places = self.layout.places
        while self._next_to_verify < len(places):
            place = places[self._next_to_verify]
            end = min(place.end, self._frontier)
            start = min(end, max(place.start, self._handed_to))
            is_last = end == place.end
            if is_last or end > start:
                number = self._next_to_verify
                part, whole = Place(start, end), self._tensors[number].digest
                yield Verify(number, part, whole, is_last)
            if not is_last:
                break
            self._next_to_verify += 1
        self._handed_to = self._frontier

    def _settle(self) -> tuple[Effect, ...]:
        if self._stage is not _Stage.CHECKING or self._num_verified < len(self._tensors):
            return ()
        self._stage = _Stage.DONE
        return (Complete(),)

    def _unwanted(self, get: Get, offset: int, now_s: float) -> tuple[Effect, ...]:
        """A piece that is there already, or one behind a hole."""
        if get.xid != self._under_way():
            return ()
        if offset > self._frontier:
            return self._resume(now_s)
        return self._return_credit(get)

    def _return_credit(self, get: Get) -> tuple[Effect, ...]:
        if get.xid != self._under_way():
            return ()
        self._owed += 1
        if self._owed < WINDOW // 2:
            return ()
        self._owed = 0
        return (Send(Credit(get.xid, WINDOW // 2)),)

    def _resume(self, now_s: float) -> tuple[Effect, ...]:
        if self._stage is not _Stage.FETCHING:
            return ()
        self._resumes += 1
        if self._resumes > FREE_RESUMES + self._pieces:
            return self._fail(f"asked {self._resumes - 1} times, {self._pieces} pieces came")
        cancel = tuple(Send(Cancel(xid)) for xid in (self._under_way(),) if xid is not None)
        return *cancel, *self._ask(now_s)

    def _ask(self, now_s: float) -> tuple[Effect, ...]:
        """For what is missing of the first span."""
        span = self._spans[0]
        get = Get(
            xid=next(self._xids),
            digest=self._digest,
            offset=self._frontier,
            end=span.end,
            piece_bytes=self._piece_bytes,
            credit=WINDOW,
        )
        self._gets[get.xid] = get
        for old in tuple(self._gets)[:-GETS_KEPT]:
            del self._gets[old]
        self._owed = 0
        self._asked_at_s = now_s
        self._pieces_before = self._pieces
        return (Send(get),)

    def _ask_for_less(self) -> None:
        self._piece_bytes = max(self._piece_bytes // 4, MIN_PIECE_BYTES)

    def _under_way(self) -> int | None:
        return next(reversed(self._gets), None)

    def _stalled_at_s(self) -> float:
        return max(self._fed_at_s, self._asked_at_s) + STALL_S

    def _fail(self, reason: str) -> tuple[Effect, ...]:
        if self._stage is _Stage.DONE:
            return ()
        return *self._end(), Failed(reason)

    def _end(self) -> tuple[Effect, ...]:
        xid = self._under_way() if self._stage is _Stage.FETCHING else None
        self._stage = _Stage.DONE
        return (Send(Cancel(xid)),) if xid is not None and self._is_connected else ()


def _missing(layout: Layout, held: Container[int]) -> Iterator[Place]:
    """Spans of the body that hold every tensor with bytes that is not held, none too near."""
    span: Place | None = None
    for number, place in enumerate(layout.places):
        if number in held or place.start == place.end:
            continue
        if span is not None and place.start <= span.end + GAP_BYTES:
            span = Place(span.start, place.end)
            continue
        if span is not None:
            yield span
        span = place
    if span is not None:
        yield span

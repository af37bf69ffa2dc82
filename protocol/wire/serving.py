"""The giving side of bulk transfers: who gets which piece next. No clock, no socket, no thread.

A reader asks for a range of a body and grants credits, one for each piece that may be under way.
One piece goes to one reader in turn. A reader that is slow, stopped or greedy costs the others
nothing: credits are clamped, a transfer that has none for a while is dropped, and where there is a
cap on the rate, one reader's share of time is up until its last piece would have left at that rate.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from protocol.errors import RemoteProtocolError
from protocol.wire.messages import Cancel, Credit, Err, Get

__all__ = ["Piece", "Serving"]

MAX_CREDIT = 16  # pieces under way to one reader
MAX_TRANSFERS = 256
MAX_TRANSFERS_PER_KEY = 4  # a fifth drops the oldest: that one's connection is most likely dead
IDLE_S = 10.0  # without credit
HOLD_S = 0.02  # a route whose pipe is full is tried again after that

_Id: TypeAlias = tuple[bytes, int]  # route, xid


@dataclass(frozen=True, slots=True)
class Piece:
    """What is to be sent next: bytes [offset, offset + num_bytes) of a body, after a Data."""

    key: bytes  # the reader's
    route: bytes
    xid: int
    digest: bytes
    offset: int
    num_bytes: int


@dataclass(slots=True)
class _Transfer:
    key: bytes
    get: Get
    offset: int
    credit: int
    idle_at_s: float  # last sent or granted
    held_until_s: float = 0.0


class Serving:
    """Ask `next_piece` until it is None; tell what became of each."""

    def __init__(self, *, max_bytes_s: float = math.inf) -> None:
        """Begin with nothing to give.

        Args:
            max_bytes_s: at most so many bytes a second to any one key, > 0.
        """
        self._max_bytes_s = max_bytes_s
        self._free_at_s: dict[bytes, float] = {}  # by key: what was sent has used up its time
        self._bodies: dict[bytes, int] = {}  # bytes of each, by digest
        self._transfers: dict[_Id, _Transfer] = {}  # oldest first
        self._turns: deque[_Id] = deque()  # those with credit, each once

    @property
    def due_s(self) -> float | None:
        """When `wake` or `next_piece` has something to do; None while readers must act first."""
        times = [
            self._ready_at_s(t) if t.credit else t.idle_at_s + IDLE_S
            for t in self._transfers.values()
        ]
        return min(times, default=None)

    def publish(self, digest: bytes, body_bytes: int) -> None:
        self._bodies[digest] = body_bytes

    def withdraw(self, digest: bytes) -> None:
        """Begin no more transfers of this body; those under way go on."""
        self._bodies.pop(digest, None)

    def uses(self, digest: bytes) -> bool:
        """Whether the body must stay: it is published, or somebody still reads it."""
        return digest in self._bodies or any(
            transfer.get.digest == digest for transfer in self._transfers.values()
        )

    def receive(
        self, route: bytes, key: bytes, message: Get | Credit | Cancel, now_s: float
    ) -> Err | None:
        """Take one request; the answer, if any, goes to the same route.

        Raises:
            RemoteProtocolError: the range lies outside the body.
        """
        match message:
            case Get():
                return self._get(route, key, message, now_s)
            case Credit(xid, pieces):
                self._grant((route, xid), pieces, now_s)
            case Cancel(xid):
                self._transfers.pop((route, xid), None)
        return None

    def next_piece(self, now_s: float) -> Piece | None:
        """The piece whose turn it is, if any may be sent now."""
        for _ in range(len(self._turns)):
            transfer = self._transfers.get(self._turns[0])
            if transfer is None or not transfer.credit:
                self._turns.popleft()
            elif self._ready_at_s(transfer) > now_s:
                self._turns.rotate(-1)
            else:
                route, xid = self._turns[0]
                get, left = transfer.get, transfer.get.end - transfer.offset
                num_bytes = min(get.piece_bytes, left)
                return Piece(transfer.key, route, xid, get.digest, transfer.offset, num_bytes)
        return None

    def sent(self, piece: Piece, now_s: float) -> None:
        """It is on its way: the next reader's turn."""
        self._turns.popleft()
        this = (piece.route, piece.xid)
        transfer = self._transfers[this]
        transfer.offset += piece.num_bytes
        transfer.credit -= 1
        transfer.idle_at_s = now_s
        busy_until_s = max(now_s, self._free_at_s.get(piece.key, 0.0))
        self._free_at_s[piece.key] = busy_until_s + piece.num_bytes / self._max_bytes_s
        if transfer.offset >= transfer.get.end:
            del self._transfers[this]
        elif transfer.credit:
            self._turns.append(this)

    def full(self, piece: Piece, now_s: float) -> None:
        """The route takes nothing now: others first."""
        self._transfers[(piece.route, piece.xid)].held_until_s = now_s + HOLD_S

    def gone(self, route: bytes) -> None:
        """This route leads nowhere any more."""
        self._drop([this for this in self._transfers if this[0] == route])

    def forget(self, key: bytes) -> None:
        """This key was revoked: not one piece more."""
        self._drop([this for this, transfer in self._transfers.items() if transfer.key == key])

    def wake(self, now_s: float) -> None:
        """Time has passed: drop the transfers that nobody reads."""
        self._drop(
            [
                this
                for this, transfer in self._transfers.items()
                if not transfer.credit and now_s >= transfer.idle_at_s + IDLE_S
            ]
        )

    def _ready_at_s(self, transfer: _Transfer) -> float:
        return max(transfer.held_until_s, self._free_at_s.get(transfer.key, 0.0))

    def _get(self, route: bytes, key: bytes, get: Get, now_s: float) -> Err | None:
        body_bytes = self._bodies.get(get.digest)
        if body_bytes is None:
            return Err(get.xid, f"no snapshot {get.digest.hex()[:12]} here, or no more")
        if not get.offset < get.end <= body_bytes:
            raise RemoteProtocolError(f"asked for bytes [{get.offset}, {get.end}) of {body_bytes}")
        self._transfers.pop((route, get.xid), None)
        of_key = [this for this, transfer in self._transfers.items() if transfer.key == key]
        self._drop(of_key[: max(0, len(of_key) + 1 - MAX_TRANSFERS_PER_KEY)])
        if len(self._transfers) >= MAX_TRANSFERS:
            return Err(get.xid, f"busy with {MAX_TRANSFERS} transfers; ask again later")
        self._transfers[(route, get.xid)] = _Transfer(key, get, get.offset, 0, now_s)
        self._grant((route, get.xid), get.credit, now_s)
        return None

    def _grant(self, this: _Id, pieces: int, now_s: float) -> None:
        transfer = self._transfers.get(this)
        if transfer is None:
            return  # it ended before the grant came
        transfer.credit = min(transfer.credit + pieces, MAX_CREDIT)
        transfer.idle_at_s = now_s
        if transfer.credit and this not in self._turns:
            self._turns.append(this)

    def _drop(self, which: list[_Id]) -> None:
        for this in which:
            del self._transfers[this]

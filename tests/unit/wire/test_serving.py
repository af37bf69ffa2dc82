"""The giving side, piece by piece: three readers of a body of 10,000 bytes in pieces of 16 KiB."""

import pytest

from protocol.errors import RemoteProtocolError
from protocol.wire.messages import MIN_PIECE_BYTES, Cancel, Credit, Err, Get
from protocol.wire.serving import (
    HOLD_S,
    IDLE_S,
    MAX_CREDIT,
    MAX_TRANSFERS,
    MAX_TRANSFERS_PER_KEY,
    Piece,
    Serving,
)

BODY = b"d" * 32
K1, K2 = b"1" * 32, b"2" * 32
R1, R2 = b"r1", b"r2"
P = MIN_PIECE_BYTES
NUM_BYTES = 40 * P + 100  # 41 pieces


def serving() -> Serving:
    it = Serving()
    it.publish(BODY, NUM_BYTES)
    return it


def get(xid: int, *, offset: int = 0, end: int = NUM_BYTES, credit: int = 4) -> Get:
    return Get(xid, BODY, offset, end, P, credit)


def sent(it: Serving, now_s: float = 0.0, *, at_most: int = 1000) -> list[tuple[bytes, int, int]]:
    """Send all that may be sent now: route, offset and size of each."""
    pieces: list[tuple[bytes, int, int]] = []
    while len(pieces) < at_most and (piece := it.next_piece(now_s)) is not None:
        it.sent(piece, now_s)
        pieces.append((piece.route, piece.offset, piece.num_bytes))
    return pieces


def test_pieces_come_in_order_as_far_as_credits_reach() -> None:
    it = serving()
    assert it.receive(R1, K1, get(1), 0.0) is None
    assert it.next_piece(0.0) == Piece(K1, R1, 1, BODY, 0, P)
    assert sent(it) == [(R1, i * P, P) for i in range(4)]
    it.receive(R1, K1, Credit(1, 2), 0.0)
    assert sent(it) == [(R1, 4 * P, P), (R1, 5 * P, P)]
    assert it.next_piece(0.0) is None


def test_the_last_piece_is_what_is_left_and_ends_the_transfer() -> None:
    it = serving()
    it.receive(R1, K1, get(1, offset=39 * P, credit=9), 0.0)
    assert sent(it) == [(R1, 39 * P, P), (R1, 40 * P, 100)]
    assert it.due_s is None
    it.receive(R1, K1, Credit(1, 2), 0.0)  # came too late, and means nothing
    assert it.next_piece(0.0) is None


def test_readers_take_turns() -> None:
    it = serving()
    it.receive(R1, K1, get(1, credit=3), 0.0)
    it.receive(R2, K2, get(1, credit=2), 0.0)
    assert [route for route, _, _ in sent(it)] == [R1, R2, R1, R2, R1]


def test_a_million_credits_are_clamped() -> None:
    it = serving()
    it.receive(R1, K1, get(1, credit=10**6), 0.0)
    it.receive(R1, K1, Credit(1, 10**6), 0.0)
    assert len(sent(it)) == MAX_CREDIT


def test_a_transfer_without_credit_is_dropped_after_a_while() -> None:
    it = serving()
    it.receive(R1, K1, get(1, credit=0), 0.0)
    it.receive(R2, K2, get(1, credit=1), 0.0)
    assert it.due_s == 0.0
    assert sent(it, 5.0) == [(R2, 0, P)]
    assert it.due_s == IDLE_S
    it.wake(IDLE_S)
    it.receive(R1, K1, Credit(1, 1), IDLE_S)
    it.receive(R2, K2, Credit(1, 1), IDLE_S)
    assert sent(it, IDLE_S) == [(R2, P, P)]


def test_a_full_route_waits_while_others_go_on() -> None:
    it = serving()
    it.receive(R1, K1, get(1, credit=1), 0.0)
    it.receive(R2, K2, get(1, credit=1), 0.0)
    piece = it.next_piece(0.0)
    assert piece is not None
    it.full(piece, 0.0)
    assert sent(it, 0.0) == [(R2, 0, P)]
    assert it.due_s == HOLD_S
    assert sent(it, HOLD_S) == [(R1, 0, P)]


def test_cancelled_gone_and_revoked_readers_get_not_one_piece_more() -> None:
    it = serving()
    for route, key in ((R1, K1), (R2, K2), (b"r3", K2), (b"r4", b"4" * 32)):
        it.receive(route, key, get(1), 0.0)
    it.receive(R1, K1, Cancel(1), 0.0)
    it.receive(R1, K1, Cancel(99), 0.0)
    it.gone(b"r4")
    it.forget(K2)
    assert sent(it) == []
    assert it.due_s is None


def test_an_unknown_snapshot_is_told() -> None:
    it = serving()
    answer = it.receive(R1, K1, Get(5, b"x" * 32, 0, 1, P, 1), 0.0)
    assert answer == Err(5, "no snapshot 787878787878 here, or no more")


def test_a_withdrawn_body_is_used_by_those_who_read_it() -> None:
    it = serving()
    it.receive(R1, K1, get(1, offset=39 * P, credit=0), 0.0)
    it.withdraw(BODY)
    assert isinstance(it.receive(R2, K2, get(1), 0.0), Err)
    assert it.uses(BODY)
    it.receive(R1, K1, Credit(1, 2), 0.0)
    assert len(sent(it)) == 2
    assert not it.uses(BODY)


@pytest.mark.parametrize(("offset", "end"), [(0, NUM_BYTES + 1), (5, 5), (6, 5)])
def test_a_range_outside_the_body_is_a_breach(offset: int, end: int) -> None:
    with pytest.raises(RemoteProtocolError, match="asked for bytes"):
        serving().receive(R1, K1, get(1, offset=offset, end=end), 0.0)


def test_asking_again_with_the_same_number_begins_anew() -> None:
    it = serving()
    it.receive(R1, K1, get(1, credit=2), 0.0)
    sent(it, at_most=1)
    it.receive(R1, K1, get(1, offset=30 * P, credit=1), 0.0)
    assert sent(it) == [(R1, 30 * P, P)]


def test_a_key_with_too_many_transfers_loses_its_oldest() -> None:
    it = serving()
    for xid in range(MAX_TRANSFERS_PER_KEY + 1):
        it.receive(bytes([xid]), K1, get(xid, credit=1), 0.0)
    assert [route for route, _, _ in sent(it)] == [bytes([xid]) for xid in (1, 2, 3, 4)]


def test_too_many_transfers_in_all_are_refused() -> None:
    it = serving()
    for number in range(MAX_TRANSFERS):
        key = number.to_bytes(32)
        assert it.receive(key, key, get(1), 0.0) is None
    answer = it.receive(R1, K1, get(9), 0.0)
    assert answer == Err(9, "busy with 256 transfers; ask again later")


def test_a_cap_holds_for_each_key_by_itself() -> None:
    it = Serving(max_bytes_s=4.0 * P)
    it.publish(BODY, NUM_BYTES)
    it.receive(R1, K1, get(1, credit=16), 0.0)
    it.receive(b"again", K1, get(2, credit=16), 0.0)  # a second connection gives no more
    assert sent(it) == [(R1, 0, P)]
    assert it.due_s == 0.25
    assert sent(it, 0.2) == []
    it.receive(R2, K2, get(1), 0.2)
    assert sent(it, 0.2) == [(R2, 0, P)]
    assert sent(it, 0.25) == [(b"again", 0, P)]
    assert sorted(sent(it, 0.5)) == [(R1, P, P), (R2, P, P)]


def test_under_a_cap_so_many_bytes_leave_in_a_second_and_none_are_saved_up() -> None:
    it = Serving(max_bytes_s=4.0 * P)
    it.publish(BODY, NUM_BYTES)
    it.receive(R1, K1, get(1, credit=16), 100.0)
    now_s = 100.0
    left_at: list[float] = []
    while len(left_at) < 9:
        left_at += [now_s for _ in sent(it, now_s)]
        assert it.due_s is not None
        now_s = it.due_s
    assert left_at == [100.0 + 0.25 * number for number in range(9)]
    assert len(sent(it, 500.0)) == 1  # time that passed unused gives no burst

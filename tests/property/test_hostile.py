"""Both sides of a transfer against a peer that says anything at all, in any order, at any time.

What is asked or claimed decides nothing: not a place in memory, not an allocation, not a loop.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import RemoteProtocolError
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    MIN_PIECE_BYTES,
    Cancel,
    Credit,
    Get,
)
from protocol.wire.serving import Serving
from tests.property.victim import NAME, SIZES, Victim, check_serving

BODY_BYTES = 3 * MAX_PIECE_BYTES + 777
OTHER = b"o" * 32
HUGE = 2**31  # what a greedy or lying peer claims

# -- the giving side -------------------------------------------------------------------------

COUNTS = st.one_of(st.integers(0, BODY_BYTES + 5), st.sampled_from([0, BODY_BYTES, HUGE, 2**48]))
XIDS = st.integers(0, 3)
REQUESTS = st.one_of(
    st.builds(
        Get,
        xid=XIDS,
        digest=st.sampled_from([NAME, NAME, OTHER]),
        offset=COUNTS,
        end=COUNTS,
        piece_bytes=st.sampled_from([MIN_PIECE_BYTES, MIN_PIECE_BYTES + 1, MAX_PIECE_BYTES]),
        credit=st.sampled_from([0, 1, 4, HUGE]),
    ),
    st.builds(Credit, xid=XIDS, pieces=st.sampled_from([1, 2, HUGE])),
    st.builds(Cancel, xid=XIDS),
)
KEYS = [b"%d" % number * 32 for number in range(3)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.integers(0, 2),  # which of the key's connections
        REQUESTS,
        st.sampled_from(["send", "full", "gone", "forget", "withdraw", "wait"]),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_whatever_is_asked_only_pieces_of_the_body_leave_and_credits_stay_few(
    steps: list[tuple[bytes, int, Get | Credit | Cancel, str]],
) -> None:
    it = Serving()
    it.publish(NAME, BODY_BYTES)
    now_s = 0.0
    for key, connection, request, then in steps:
        now_s += 0.01
        route = key[:1] + bytes([connection])
        try:
            answer = it.receive(route, key, request, now_s)
            assert answer is None or answer.xid == request.xid
        except RemoteProtocolError:
            assert isinstance(request, Get)
        check_serving(it)
        now_s = act(it, then, key, route, now_s)
    it.wake(now_s + 100.0)
    assert all(transfer.credit for transfer in it._transfers.values())  # the others were dropped


def act(it: Serving, then: str, key: bytes, route: bytes, now_s: float) -> float:
    """What happens after a request; the instant afterwards."""
    piece = it.next_piece(now_s)
    match then:
        case "send" if piece is not None:
            assert 0 <= piece.offset < piece.offset + piece.num_bytes <= BODY_BYTES
            assert piece.num_bytes <= MAX_PIECE_BYTES
            it.sent(piece, now_s)
        case "full" if piece is not None:
            it.full(piece, now_s)
        case "gone":
            it.gone(route)
        case "forget":
            it.forget(key)
            left = [transfer for transfer in it._transfers.values() if transfer.key == key]
            assert left == []
        case "withdraw":
            it.withdraw(NAME)
            it.publish(NAME, BODY_BYTES)
        case "wait":
            now_s += 11.0
            it.wake(now_s)
        case _:
            pass
    return now_s


# -- the taking side ---------------------------------------------------------------------------

OFFSETS = st.one_of(
    st.none(),  # the one that is due
    st.integers(0, 4 * MAX_PIECE_BYTES),
    st.sampled_from([HUGE, 2**48]),
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, 12), OFFSETS, st.sampled_from([0, 0, 0, -1, 7])),
        st.tuples(st.just("err"), st.integers(0, 12)),
        st.tuples(st.just("connected")),
        st.tuples(st.just("disconnected")),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 5.0, 6.0, 59.0])),
        st.tuples(st.just("verified"), st.integers(0, 3), st.sampled_from([True, True, False])),
    ),
    max_size=80,
)


@given(
    sizes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=4),
    events=EVENTS,
    held=st.integers(0, 15),
)
def test_whatever_is_sent_a_pull_writes_only_what_is_missing_and_ends_once(
    sizes: list[int], events: list[tuple[Any, ...]], held: int
) -> None:
    victim = Victim(sizes, held)
    for event in events:
        with victim.judging():
            victim.suffer(*event)
    victim.check()

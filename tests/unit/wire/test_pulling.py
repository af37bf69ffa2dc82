"""The taking side, piece by piece: a body of three tensors, 2.5 pieces of 1 MiB."""

from itertools import count
from typing import Any

import pytest

from protocol.errors import RemoteProtocolError
from protocol.wire.layout import Place
from protocol.wire.link import Send
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    Cancel,
    Credit,
    Data,
    Err,
    Get,
    Part,
    SnapshotManifest,
    TensorSpec,
)
from protocol.wire.pulling import (
    FREE_RESUMES,
    GIVE_UP_S,
    STALL_S,
    WINDOW,
    Complete,
    Failed,
    Pull,
    Verify,
)

NAME = b"n" * 32
M = MAX_PIECE_BYTES


def spec(name: str, num_bytes: int) -> TensorSpec:
    return TensorSpec("params", name, "uint8", (num_bytes,), name.encode() * 32)


def manifest(*specs: TensorSpec) -> SnapshotManifest:
    return SnapshotManifest(
        run=bytes(16), sender="a", part=Part.RESULT, round_no=1,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1,
        nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(), tensors=specs,
    )  # fmt: skip


BODY = (spec("a", 64), spec("b", 2 * M - 64), spec("c", M // 2))  # no gaps
ENDS = (0, M, 2 * M, 2 * M + M // 2)


def pull(*specs: TensorSpec) -> Pull:
    return Pull(manifest(*(specs or BODY)), digest=NAME, xids=count(1), now_s=0.0)


def get(xid: int, *, offset: int = 0, piece_bytes: int = M, end: int = ENDS[3]) -> Send:
    return Send(Get(xid, NAME, offset, end, piece_bytes, WINDOW))


def fetching() -> Pull:
    it = pull()
    assert it.begin() == ()
    assert it.connected(0.0) == (get(1),)
    return it


def give(it: Pull, number: int, *, xid: int = 1, now_s: float = 1.0) -> Any:
    """Give it one of the three pieces."""
    data = Data(xid, ENDS[number])
    place = it.place(data)
    return it.receive(data, 0 if place is None else place.end - place.start, now_s)


def verify(tensor: int, start: int, end: int, *, is_last: bool = True) -> Verify:
    return Verify(tensor, Place(start, end), BODY[tensor].digest, is_last)


def first() -> tuple[Verify, Verify]:
    """What the first piece brings: a tensor, and the beginning of the next."""
    return verify(0, 0, 64), verify(1, 64, M, is_last=False)


def test_a_body_arrives_and_its_bytes_are_handed_out_as_they_come() -> None:
    it = fetching()
    assert it.place(Data(1, 0)) == Place(0, M)
    assert give(it, 0) == first()
    assert give(it, 1) == (verify(1, M, 2 * M),)
    assert it.place(Data(1, 2 * M)) == Place(2 * M, ENDS[3])
    assert give(it, 2) == (verify(2, 2 * M, ENDS[3]),)
    assert it.due_s is None
    assert it.verified(tensor=2, is_good=True) == it.verified(tensor=0, is_good=True) == ()
    assert it.verified(tensor=1, is_good=True) == (Complete(),)
    assert it.is_done
    assert it.num_bytes == ENDS[3]


def test_credit_is_returned_every_half_window() -> None:
    it = pull(spec("a", 8 * M))
    assert it.connected(0.0) == (get(1, end=8 * M),)
    returned = []
    for number in range(7):
        effects = it.receive(Data(1, number * M), M, 1.0)
        returned += [(number, e.message) for e in effects if isinstance(e, Send)]
    assert returned == [(2, Credit(1, WINDOW // 2)), (5, Credit(1, WINDOW // 2))]


def test_tensors_without_bytes_and_gaps_between_tensors_are_no_matter() -> None:
    it = pull(spec("z", 0), spec("a", 3), spec("b", 1))
    assert it.begin() == (Verify(0, Place(0, 0), b"z" * 32),)
    assert it.connected(0.0) == (get(1, end=65),)
    assert it.receive(Data(1, 0), 65, 1.0) == (
        Verify(1, Place(0, 3), b"a" * 32),
        Verify(2, Place(64, 65), b"b" * 32),
    )


def test_an_empty_body_is_complete_without_a_word() -> None:
    it = Pull(manifest(), digest=NAME, xids=count(1), now_s=0.0)
    assert it.begin() == (Complete(),)
    assert it.connected(0.0) == ()


def spaced(*, held: set[int]) -> Pull:
    """Four tensors, of 3, 2, 1 and 2 MiB."""
    sizes = (("a", 3 * M), ("b", 2 * M), ("c", M), ("d", 2 * M))
    specs = [spec(name, size) for name, size in sizes]
    return Pull(manifest(*specs), digest=NAME, xids=count(1), now_s=0.0, held=held)


def fill(it: Pull, get_: Get) -> list[Any]:
    """Give it all that a Get asks for; the effects without credits."""
    effects: list[Any] = []
    for offset in range(get_.offset, get_.end, get_.piece_bytes):
        data = Data(get_.xid, offset)
        place = it.place(data)
        assert place is not None
        effects += it.receive(data, place.end - place.start, 1.0)
    return [e for e in effects if not (isinstance(e, Send) and isinstance(e.message, Credit))]


def test_what_is_held_is_hashed_but_not_asked_for() -> None:
    it = spaced(held={1})
    assert it.spans == (Place(0, 3 * M), Place(5 * M, 8 * M))
    assert it.begin() == ()
    assert it.connected(0.0) == (get(1, end=3 * M),)
    effects = fill(it, Get(1, NAME, 0, 3 * M, M, WINDOW))
    assert get(2, offset=5 * M, end=8 * M) in effects
    assert [(e.tensor, e.is_last) for e in effects if isinstance(e, Verify)][-2:] == [
        (0, True),
        (1, True),
    ]
    fill(it, Get(2, NAME, 5 * M, 8 * M, M, WINDOW))
    assert it.num_bytes == 6 * M
    ends = [it.verified(tensor=tensor, is_good=True) for tensor in range(4)]
    assert ends == [(), (), (), (Complete(),)]


def test_what_lies_before_the_first_byte_missing_is_hashed_at_once() -> None:
    it = spaced(held={0, 1, 2})
    begun = it.begin()
    assert [v.tensor for v in begun if isinstance(v, Verify) and v.is_last] == [0, 1, 2]
    assert it.connected(0.0) == (get(1, offset=6 * M, end=8 * M),)


def test_a_small_gap_is_fetched_rather_than_asked_around() -> None:
    it = spaced(held={2})  # of exactly one piece
    assert it.spans == (Place(0, 8 * M),)


def test_a_body_that_is_held_whole_is_only_hashed() -> None:
    it = spaced(held={0, 1, 2, 3})
    assert [v.tensor for v in it.begin() if isinstance(v, Verify)] == [0, 1, 2, 3]
    assert it.connected(0.0) == ()
    for tensor in range(3):
        assert it.verified(tensor=tensor, is_good=True) == ()
    assert it.verified(tensor=3, is_good=True) == (Complete(),)
    assert it.num_bytes == 0


def test_a_break_in_the_second_span_goes_on_there() -> None:
    it = spaced(held={1})
    it.begin()
    it.connected(0.0)
    fill(it, Get(1, NAME, 0, 3 * M, M, WINDOW))
    assert it.place(Data(1, 5 * M)) is None  # of the span before
    data = Data(2, 5 * M)
    assert it.place(data) == Place(5 * M, 6 * M)
    it.receive(data, M, 1.0)
    it.disconnected()
    assert it.connected(2.0) == (get(3, offset=6 * M, end=8 * M),)


def test_a_tensor_with_a_wrong_digest_fails_the_pull() -> None:
    it = fetching()
    give(it, 0)
    failed = Failed("tensor a does not have its digest")
    assert it.verified(tensor=0, is_good=False) == (Send(Cancel(1)), failed)
    assert it.verified(tensor=1, is_good=True) == ()
    assert give(it, 1) == ()


def test_a_wrong_digest_after_the_last_byte_needs_no_cancelling() -> None:
    it = fetching()
    for number in range(3):
        give(it, number)
    assert it.verified(tensor=2, is_good=False) == (Failed("tensor c does not have its digest"),)


def test_a_reconnect_goes_on_where_the_bytes_end() -> None:
    it = fetching()
    give(it, 0)
    it.disconnected()
    assert it.wake(30.0) == ()
    assert it.connected(31.0) == (get(2, offset=M),)
    assert it.place(Data(1, M)) is None  # of the connection that is gone
    assert give(it, 1, xid=2, now_s=32.0) == (verify(1, M, 2 * M),)


def test_a_link_that_breaks_before_the_first_piece_is_asked_for_smaller_ones() -> None:
    it = fetching()
    it.disconnected()
    assert it.connected(10.0) == (get(2, piece_bytes=M // 4),)
    assert it.place(Data(2, 0)) == Place(0, M // 4)


def test_a_stall_is_asked_again_for_smaller_pieces() -> None:
    it = fetching()
    give(it, 0, now_s=1.0)
    assert it.due_s == 1.0 + STALL_S
    assert it.wake(5.9) == ()
    assert it.wake(6.0) == (Send(Cancel(1)), get(2, offset=M, piece_bytes=M // 4))
    assert it.due_s == 6.0 + STALL_S


def test_late_pieces_of_the_last_question_are_taken_and_their_twins_dropped() -> None:
    it = fetching()
    it.wake(STALL_S)
    assert it.place(Data(1, 0)) == Place(0, M)
    assert give(it, 0, xid=1, now_s=6.0) == first()
    quarter = M // 4
    for number in range(4):
        data = Data(2, number * quarter)
        assert it.place(data) is None
        effects = it.receive(data, 0, 6.0)
        assert effects == ((Send(Credit(2, 3)),) if number == 2 else ())
    assert it.place(Data(2, M)) == Place(M, M + quarter)


def test_a_hole_is_asked_for_again() -> None:
    it = fetching()
    assert it.place(Data(1, M)) is None
    assert give(it, 1) == (Send(Cancel(1)), get(2))
    assert give(it, 2) == ()  # of the question before: once is enough


def test_a_piece_that_comes_twice_is_taken_once() -> None:
    it = fetching()
    give(it, 0)
    assert it.place(Data(1, 0)) is None
    assert give(it, 0) == ()
    assert give(it, 0) == (Send(Credit(1, 3)),)  # its credit comes back all the same
    assert it.num_bytes == M


@pytest.mark.parametrize("num_bytes", [-1, 0, M - 1, M + 1])
def test_a_piece_of_another_size_is_a_breach(num_bytes: int) -> None:
    with pytest.raises(RemoteProtocolError, match="not of 1048576 bytes"):
        fetching().receive(Data(1, 0), num_bytes, 1.0)


def test_a_message_of_another_transfer_means_nothing() -> None:
    it = fetching()
    assert it.receive(Data(9, 0), M, 1.0) == it.receive(Err(9, "no"), 0, 1.0) == ()


def test_a_refusal_fails_the_pull() -> None:
    it = fetching()
    failed = Failed("refused: no snapshot")
    assert it.receive(Err(1, "no snapshot"), 0, 1.0) == (Send(Cancel(1)), failed)
    assert it.fail("again") == ()


def test_a_pull_that_is_not_wanted_is_cancelled_where_it_can_be() -> None:
    assert fetching().cancel() == (Send(Cancel(1)),)
    assert pull().cancel() == ()
    lost = fetching()
    lost.disconnected()
    assert lost.cancel() == ()
    assert lost.wake(1000.0) == lost.connected(1000.0) == ()


def test_asking_without_getting_ends() -> None:
    it = pull()
    for number in range(FREE_RESUMES):
        assert it.connected(float(number))[-1:] == (
            get(number + 1, piece_bytes=max(M >> 2 * number, 1 << 14)),
        )
        it.disconnected()
    assert it.connected(9.0) == (Failed("asked 8 times, 0 pieces came"),)


def test_a_piece_pays_for_one_more_question() -> None:
    it = fetching()
    give(it, 0)
    for number in range(FREE_RESUMES):
        it.disconnected()
        assert isinstance(it.connected(2.0 + number)[0], Send)
    it.disconnected()
    assert it.connected(20.0) == (Failed("asked 9 times, 1 pieces came"),)


def test_a_neighbour_that_cannot_be_reached_is_given_up() -> None:
    it = fetching()
    give(it, 0, now_s=1.0)
    it.disconnected()
    assert it.due_s == 1.0 + GIVE_UP_S
    assert it.wake(61.0) == (Failed("no piece for 60 s"),)

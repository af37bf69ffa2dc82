"""The answering side: who asks gets the snapshot now, or word every two seconds until it is."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.ids import PeerId
from protocol.wire.codec import PEER, encode_document
from protocol.wire.link import WakeAt
from protocol.wire.messages import (
    MAX_MANIFEST_BYTES,
    Bye,
    Cancel,
    Credit,
    Data,
    Done,
    DoneAck,
    Epoch,
    Err,
    Get,
    Part,
    Refuse,
    Seen,
    SignedView,
    Welcome,
)
from protocol.wire.shelf import PeerDone, Reply, Shelf, Status
from tests.unit.wire.conversation import (
    HELLO,
    OTHER_RUN,
    RUN,
    SCHEMA,
    SECRET,
    WELCOME,
    A,
    B,
    ask,
    encoded,
    manifest,
    name_of,
    not_yet,
    offer,
)

R1, R2 = b"route1", b"route2"
C = PeerId("c")


def shelf(*rounds: int) -> Shelf:
    made = Shelf(run=RUN, name=A, schema=SCHEMA, sign_secret=SECRET)
    made.status(Status(at_round=2, phase="train", fraction=0.5, eta_s=3.0))
    for round_no in rounds:
        made.publish(round_no, encoded(round_no))
    return made


def test_a_greeting_is_answered_with_the_newest_round() -> None:
    assert shelf().receive(R1, B, HELLO, 0.0) == (Reply(R1, Welcome(A, 0)),)
    assert shelf(1, 2).receive(R1, B, HELLO, 0.0) == (Reply(R1, Welcome(A, 2)),)


@pytest.mark.parametrize(
    ("hello", "line"),
    [
        (replace(HELLO, version=2), "wire version 2, a speaks 1"),
        (replace(HELLO, run=OTHER_RUN), "run 000000000000, a is in 000102030405"),
        (replace(HELLO, sender="c"), "name c, but the key is b's"),
        (replace(HELLO, schema=bytes(32)), "schema 000000000000, a has"),
    ],
)
def test_a_greeting_that_does_not_fit_is_told_which_line_differs(hello: Any, line: str) -> None:
    (reply,) = shelf().receive(R1, B, hello, 0.0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Refuse)
    assert reply.message.reason.startswith(line)


def test_a_question_is_answered_at_once_when_the_snapshot_is_there() -> None:
    assert shelf(1, 2).receive(R1, B, ask(1, 7), 0.0) == (Reply(R1, offer(1, 7)),)
    assert shelf(1, 2).receive(R1, B, ask(2, 7), 0.0) == (Reply(R1, offer(2, 7)),)


def test_a_round_that_is_gone_is_answered_with_the_newest() -> None:
    assert shelf(1, 2, 3).receive(R1, B, ask(1, 1), 0.0) == (Reply(R1, offer(3, 1)),)
    assert shelf(1, 5).receive(R1, B, ask(3, 1), 0.0) == (Reply(R1, offer(5, 1)),)


def test_as_many_rounds_stay_as_were_asked_for_with_the_newest() -> None:
    made = shelf()
    for round_no in range(1, 8):
        made.publish(round_no, encoded(round_no), kept=4)
    for round_no, answered in ((3, 7), (4, 4), (5, 5), (6, 6), (7, 7)):
        assert made.receive(R1, B, ask(round_no, 1), 0.0) == (Reply(R1, offer(answered, 1)),)


def test_a_question_too_early_stands_until_it_is_answered() -> None:
    it = shelf(1)
    assert it.receive(R1, B, ask(2, 1), 0.0) == (Reply(R1, not_yet(2, 1)), WakeAt(2.0))
    assert it.receive(R2, C, ask(2, 4), 1.5) == (Reply(R2, not_yet(2, 4)), WakeAt(2.0))
    assert it.wake(1.0) == (WakeAt(2.0),)
    assert it.wake(2.0) == (Reply(R1, not_yet(2, 1)), Reply(R2, not_yet(2, 4)), WakeAt(4.0))
    assert it.publish(2, encoded(2)) == (Reply(R1, offer(2, 1)), Reply(R2, offer(2, 4)))
    assert it.wake(4.0) == ()


def test_a_newer_round_answers_those_who_wait_for_an_older_one_alone() -> None:
    it = shelf()
    it.receive(R1, B, ask(1, 1), 0.0)
    it.receive(R2, C, ask(9, 1), 0.0)
    assert it.publish(2, encoded(2)) == (Reply(R1, offer(2, 1)),)
    assert it.wake(2.0) == (Reply(R2, not_yet(9, 1)), WakeAt(4.0))


def test_a_question_put_again_stands_once_with_its_last_attempt() -> None:
    it = shelf()
    it.receive(R1, B, ask(1, 1), 0.0)
    it.receive(R1, B, ask(1, 2), 1.0)
    assert it.publish(1, encoded(1)) == (Reply(R1, offer(1, 2)),)


def test_a_question_of_another_run_is_refused() -> None:
    refused = (Reply(R1, Refuse("run 000000000000, a is in 000102030405")),)
    assert shelf(1).receive(R1, B, replace(ask(1, 1), run=OTHER_RUN), 0.0) == refused
    assert shelf(1).receive(R1, B, Done(OTHER_RUN), 0.0) == refused


def test_done_is_acknowledged_each_time_and_ends_the_question() -> None:
    it = shelf()
    it.receive(R1, B, ask(1, 1), 0.0)
    acknowledged = (Reply(R1, DoneAck(RUN)), PeerDone(B))
    assert it.receive(R1, B, Done(RUN), 1.0) == acknowledged
    assert it.receive(R1, B, Done(RUN), 2.0) == acknowledged
    assert it.publish(1, encoded(1)) == ()


def test_who_left_or_was_revoked_or_is_gone_is_not_written_to() -> None:
    it = shelf()
    for route, peer in ((b"1", B), (b"2", C), (b"3", PeerId("d")), (b"4", PeerId("e"))):
        it.receive(route, peer, ask(1, 1), 0.0)
    it.receive(b"1", B, Bye("finished"), 1.0)
    it.forget(C)
    it.gone(b"3")
    assert it.publish(1, encoded(1)) == (Reply(b"4", offer(1, 1)),)
    assert it.leave("finished") == (Reply(b"4", Bye("finished")),)


def test_goodbye_goes_to_all_who_ever_spoke() -> None:
    it = shelf()
    it.receive(R1, B, HELLO, 0.0)
    it.receive(R2, C, ask(1, 1), 0.0)
    assert set(it.leave("stop")) == {Reply(R1, Bye("stop")), Reply(R2, Bye("stop"))}
    assert it.leave("stop") == it.wake(2.0) == ()


def test_a_key_has_at_most_four_routes_the_newest_ones() -> None:
    it = shelf()
    for number in range(6):
        it.receive(bytes([number]), B, ask(1, number), 0.0)
    it.receive(R1, C, ask(1, 0), 0.0)
    answered = [reply.route for reply in it.publish(1, encoded(1)) if isinstance(reply, Reply)]
    assert answered == [bytes([2]), bytes([3]), bytes([4]), bytes([5]), R1]


def test_a_round_is_published_once_and_never_back() -> None:
    it = shelf(1, 2)
    assert it.publish(2, encoded(2)) == ()
    for round_no, told in ((1, encoded(1)), (2, encoded(3))):
        with pytest.raises(LocalProtocolError, match="cannot be published after round 2, or twice"):
            it.publish(round_no, told)


@pytest.mark.parametrize(
    "message",
    [
        WELCOME,
        Refuse(""),
        not_yet(1, 1),
        offer(1, 1),
        DoneAck(RUN),
        Get(1, bytes(32), 0, 1, 1 << 20, 1),
        Credit(1, 1),
        Cancel(1),
        Data(1, 0),
        Err(1, ""),
    ],
)
def test_what_only_answerers_say_is_a_breach(message: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="from b, which asks here"):
        shelf().receive(R1, B, message, 0.0)


VIEW = SignedView(b"a view", bytes(64))


def test_whoever_has_an_older_view_is_passed_the_newer_one() -> None:
    it = shelf()
    assert it.receive(R1, B, Seen(RUN, Epoch(1, 5)), 0.0) == ()  # there is none yet
    it.view(Epoch(1, 6), VIEW)
    assert it.receive(R1, B, Seen(RUN, Epoch(1, 5)), 0.0) == (Reply(R1, VIEW),)
    assert it.receive(R2, C, Seen(RUN, Epoch(0, 9)), 0.0) == (Reply(R2, VIEW),)


@pytest.mark.parametrize("seen", [Epoch(1, 6), Epoch(1, 7), Epoch(2, 0)])
def test_whoever_has_the_same_view_or_a_newer_one_is_passed_none(seen: Epoch) -> None:
    it = shelf()
    it.view(Epoch(1, 6), VIEW)
    assert it.receive(R1, B, Seen(RUN, seen), 0.0) == ()


def test_a_view_goes_out_once_a_second_on_a_route() -> None:
    it = shelf()
    it.view(Epoch(1, 6), VIEW)
    times_s = [0.0, 0.2, 0.9, 1.0, 1.5, 2.0]
    sent = [bool(it.receive(R1, B, Seen(RUN, Epoch(0, 0)), at_s)) for at_s in times_s]
    assert sent == [True, False, False, True, False, True]


def test_a_view_of_another_run_is_not_passed_on() -> None:
    it = shelf()
    it.view(Epoch(1, 6), VIEW)
    (reply,) = it.receive(R1, B, Seen(OTHER_RUN, Epoch(0, 0)), 0.0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Refuse)


STEP = encode_document(replace(manifest(2), part=Part.STEP, base=name_of(1)))


def stepping(step: bytes = STEP) -> Shelf:
    """Rounds 1 and 2, and the step from one to the other."""
    made = shelf(1)
    made.publish(2, step, Part.STEP, name_of(1))
    made.publish(2, encoded(2))
    return made


def test_who_holds_the_result_before_is_offered_the_step() -> None:
    (reply,) = stepping().receive(R1, B, replace(ask(2, 1), holds=name_of(1)), 0.0)
    assert reply == Reply(R1, replace(offer(2, 1), step=STEP))


def test_who_waits_is_offered_the_step_with_the_result() -> None:
    made = shelf(1)
    made.receive(R1, B, replace(ask(2, 1), holds=name_of(1)), 0.0)
    assert made.publish(2, STEP, Part.STEP, name_of(1)) == ()
    assert made.publish(2, encoded(2)) == (Reply(R1, replace(offer(2, 1), step=STEP)),)


@pytest.mark.parametrize("holds", [b"", name_of(2), bytes(32)])
def test_who_holds_anything_else_is_offered_the_whole_result(holds: bytes) -> None:
    (reply,) = stepping().receive(R1, B, replace(ask(2, 1), holds=holds), 0.0)
    assert reply == Reply(R1, offer(2, 1))


def test_an_older_round_is_offered_without_the_newer_ones_step() -> None:
    (reply,) = stepping().receive(R1, B, replace(ask(1, 1), holds=name_of(1)), 0.0)
    assert reply == Reply(R1, offer(1, 1))


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_two_manifests_too_long_for_one_message_mean_the_whole_result(
    more: int, fits: bool
) -> None:
    step = bytes(MAX_MANIFEST_BYTES - len(encoded(2)) + more)
    (reply,) = stepping(step).receive(R1, B, replace(ask(2, 1), holds=name_of(1)), 0.0)
    assert isinstance(reply, Reply)
    assert reply.message == replace(offer(2, 1), step=step if fits else b"")
    assert PEER.decode(PEER.encode(reply.message)) == reply.message

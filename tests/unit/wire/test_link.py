"""The asking side, situation by situation: silence 10 s, asked again after 20 s."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import RemoteProtocolError
from protocol.wire.codec import encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import schema_digest
from protocol.wire.link import (
    Answered,
    Finished,
    Link,
    LinkDown,
    LinkUp,
    Refused,
    Send,
    Step,
    Waiting,
    WakeAt,
)
from protocol.wire.messages import (
    Ask,
    Bye,
    Cancel,
    Credit,
    Data,
    Done,
    DoneAck,
    Err,
    Get,
    Part,
    PeerMessage,
    Refuse,
    SnapshotManifest,
    TensorSpec,
    Welcome,
)
from protocol.wire.shelf import Reply, Shelf
from protocol.wire.signing import Purpose, sign, sign_snapshot
from tests.unit.wire.conversation import (
    HELLO,
    OTHER_RUN,
    RUN,
    SCHEMA,
    SECRET,
    SIGN_KEY,
    SPECS,
    WELCOME,
    A,
    B,
    answered,
    ask,
    encoded,
    manifest,
    name_of,
    not_yet,
    offer,
    offer_of,
)


def fresh() -> Link:
    return Link(HELLO, neighbour=A, sign_key=SIGN_KEY, silence_s=10.0, reask_s=20.0)


def up(*, now_s: float = 0.0) -> Link:
    link = fresh()
    link.connected(now_s)
    link.receive(WELCOME, now_s)
    return link


def test_it_greets_first_then_puts_the_question_that_stands() -> None:
    link = fresh()
    assert link.ask(1, 0.0) == ()
    assert link.connected(1.0) == (Send(HELLO), WakeAt(11.0))
    assert link.receive(WELCOME, 2.0) == (LinkUp(WELCOME), Send(ask(1, 1)), WakeAt(12.0))
    assert link.is_up
    assert link.heard_at_s == 2.0


def test_without_a_question_it_is_our_turn() -> None:
    link = fresh()
    link.connected(0.0)
    assert link.receive(WELCOME, 1.0) == (LinkUp(WELCOME),)
    assert link.wake(1000.0) == ()
    assert link.receive(WELCOME, 1001.0) == ()
    assert link.ask(1, 1002.0) == (Send(ask(1, 1)), WakeAt(1012.0))


def test_not_yet_keeps_the_question_open() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.receive(not_yet(1, 1), 2.0) == (Waiting(not_yet(1, 1)), WakeAt(12.0))
    assert link.receive(not_yet(1, 1), 11.0) == (Waiting(not_yet(1, 1)), WakeAt(20.0))
    assert link.wake(19.9) == (WakeAt(20.0),)
    assert link.wake(20.0) == (Send(ask(1, 2)), WakeAt(21.0))


def test_an_offer_closes_the_question_once() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.receive(offer(1, 1), 1.0) == (answered(1),)
    assert link.receive(offer(1, 1), 2.0) == ()
    assert link.receive(not_yet(1, 1), 2.0) == ()


def test_a_newer_round_than_asked_is_an_answer_and_an_older_one_is_not() -> None:
    link = up()
    link.ask(2, 0.0)
    assert link.receive(offer(1, 1), 1.0) == (WakeAt(11.0),)
    assert link.receive(offer(4, 1), 2.0) == (answered(4),)


def test_an_answer_to_an_older_attempt_is_an_answer() -> None:
    link = up()
    link.ask(1, 0.0)
    link.receive(not_yet(1, 1), 9.0)
    link.receive(not_yet(1, 1), 18.0)
    assert link.wake(20.0)[0] == Send(ask(1, 2))
    assert link.receive(offer(1, 1), 21.0) == (answered(1),)


def test_an_answer_of_another_run_is_dropped() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.receive(replace(offer(1, 1), run=OTHER_RUN), 1.0) == (WakeAt(11.0),)
    assert link.receive(replace(not_yet(1, 1), run=OTHER_RUN), 1.0) == (WakeAt(11.0),)


def test_a_new_question_withdraws_the_old_one() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.ask(2, 5.0) == (Send(ask(2, 2)), WakeAt(15.0))
    assert link.receive(not_yet(1, 1), 6.0) == (WakeAt(16.0),)
    assert link.receive(offer(1, 1), 6.0) == (WakeAt(16.0),)


def of_part(part: Part, round_no: int, **other: Any) -> bytes:
    return encode_document(replace(manifest(round_no), part=part, **other))


def test_an_answer_that_crosses_a_question_for_another_part_is_no_breach() -> None:
    """A result that was asked for twice comes twice: the second time after its state was asked."""
    link, shelf = up(), Shelf(run=RUN, name=A, schema=SCHEMA, sign_secret=SECRET)
    (first, *_) = link.ask(5, 0.0)
    link.receive(not_yet(5, 1), 18.0)
    (again, *_) = link.wake(20.0)  # both are on their way
    assert isinstance(first, Send)
    assert isinstance(again, Send)
    shelf.publish(5, of_part(Part.STATE, 5), Part.STATE)
    shelf.publish(5, encoded(5))
    one, two = (said(shelf, send.message) for send in (first, again))
    assert link.receive(one, 21.0) == (answered(5),)
    (third, *_) = link.ask(5, 22.0, Part.STATE)
    assert link.receive(two, 22.1) == (WakeAt(32.1),)
    assert isinstance(third, Send)
    (heard, *_) = link.receive(said(shelf, third.message), 22.2)
    assert isinstance(heard, Answered)
    assert heard.manifest.part is Part.STATE


def said(shelf: Shelf, message: PeerMessage) -> PeerMessage:
    """The one answer."""
    (reply,) = shelf.receive(b"route", B, message, 0.0)
    assert isinstance(reply, Reply)
    return reply.message


def test_a_state_that_comes_when_results_are_asked_for_again_is_no_breach() -> None:
    link = up()
    link.ask(5, 0.0, Part.STATE)
    link.ask(6, 10.0)  # the round has gone on without
    late = offer_of(of_part(Part.STATE, 6), 1, round_no=6)  # the newest, as 5 is gone
    assert link.receive(late, 11.0) == (WakeAt(21.0),)
    assert link.receive(offer(6, 2), 12.0) == (answered(6),)


@pytest.mark.parametrize(
    ("attempt", "part", "other"),
    [
        (2, Part.RESULT, {}),  # the answer to this very question is of another part
        (1, Part.UPDATE, {}),  # nobody has asked for that
        (0, Part.UPDATE, {}),  # nor at an attempt that never was
        (0, Part.RESULT, {}),
        (1, Part.STEP, {}),
        (1, Part.RESULT, {"sender": "b"}),  # late, and a lie all the same
        (1, Part.RESULT, {"run": OTHER_RUN}),
    ],
)
def test_another_part_is_a_breach_where_no_earlier_question_asked_for_it(
    attempt: int, part: Part, other: dict[str, Any]
) -> None:
    link = up()
    link.ask(5, 0.0)
    link.ask(5, 1.0, Part.STATE)
    offered = offer_of(of_part(part, 5, **other), attempt, round_no=5)
    with pytest.raises(RemoteProtocolError, match="manifest of a: "):
        link.receive(offered, 2.0)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_an_answer_crosses_once_for_each_attempt_and_is_not_checked_for_ever(
    order: tuple[int, int],
) -> None:
    link = up()
    link.ask(5, 0.0)
    link.receive(not_yet(5, 1), 18.0)
    link.wake(20.0)  # the result is asked for at attempts 1 and 2
    link.ask(5, 21.0, Part.STATE)
    for attempt in order:
        assert link.receive(offer(5, attempt), 22.0) == (WakeAt(32.0),)
    for attempt in (1, 2):
        with pytest.raises(RemoteProtocolError, match="part result, not state"):
            link.receive(offer(5, attempt), 23.0)


def test_a_late_answer_of_another_part_that_its_sender_did_not_sign_is_a_breach() -> None:
    link = up()
    link.ask(5, 0.0)
    link.ask(5, 1.0, Part.STATE)
    with pytest.raises(RemoteProtocolError, match="the signature does not fit"):
        link.receive(replace(offer(5, 1), signature=bytes(64)), 2.0)


def test_a_reconnect_greets_and_asks_with_a_new_attempt() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.disconnected(1.0) == (LinkDown("connection lost"),)
    assert not link.is_up
    assert link.disconnected(1.0) == ()
    assert link.wake(100.0) == ()
    assert link.receive(not_yet(1, 1), 100.0) == ()
    assert link.connected(101.0) == (Send(HELLO), WakeAt(111.0))
    assert link.receive(WELCOME, 101.0) == (LinkUp(WELCOME), Send(ask(1, 2)), WakeAt(111.0))


def test_silence_is_told_once_and_greeted_until_it_ends() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.wake(10.0) == (LinkDown("silent for 10 s"), Send(HELLO), WakeAt(20.0))
    assert link.wake(20.0) == (Send(HELLO), WakeAt(30.0))
    assert link.receive(WELCOME, 21.0) == (LinkUp(WELCOME), Send(ask(1, 2)), WakeAt(31.0))


def test_silence_counts_from_the_question_when_it_comes_after_a_long_rest() -> None:
    link = up(now_s=0.0)
    assert link.ask(1, 500.0) == (Send(ask(1, 1)), WakeAt(510.0))
    assert link.wake(509.0) == (WakeAt(510.0),)


def test_a_greeting_without_an_answer_is_told_once() -> None:
    link = fresh()
    link.connected(0.0)
    assert link.wake(10.0) == (LinkDown("silent for 10 s"), Send(HELLO), WakeAt(20.0))
    assert link.disconnected(11.0) == ()


def test_a_refusal_is_told_once_for_each_reason_and_tried_again() -> None:
    link = fresh()
    link.connected(0.0)
    assert link.receive(Refuse("schema x"), 1.0) == (Refused("schema x"), WakeAt(21.0))
    assert link.wake(21.0) == (Send(HELLO), WakeAt(31.0))
    assert link.receive(Refuse("schema x"), 22.0) == (WakeAt(42.0),)
    assert link.receive(Refuse("run y"), 23.0) == (Refused("run y"), WakeAt(43.0))
    assert link.wake(43.0) == (Send(HELLO), WakeAt(53.0))
    assert link.receive(WELCOME, 44.0) == (LinkUp(WELCOME),)


def test_a_goodbye_is_told_as_one() -> None:
    link = up()
    link.ask(1, 0.0)
    bye = LinkDown("finished", said_bye=True)
    assert link.receive(Bye("finished"), 1.0) == (bye, WakeAt(21.0))
    assert link.wake(21.0) == (Send(HELLO), WakeAt(31.0))
    assert link.disconnected(22.0) == ()


def test_done_is_said_until_they_have_heard_it() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.finish(1.0) == (Send(Done(RUN)), WakeAt(3.0))
    assert link.wake(3.0) == (Send(Done(RUN)), WakeAt(5.0))
    assert link.receive(DoneAck(OTHER_RUN), 4.0) == (WakeAt(5.0),)
    assert link.receive(DoneAck(RUN), 4.0) == (Finished(),)
    assert link.is_finished
    assert link.connected(5.0) == link.disconnected(5.0) == link.wake(5.0) == ()
    assert link.receive(WELCOME, 5.0) == link.fail("late", 5.0) == ()


def test_done_is_said_when_the_link_comes_up() -> None:
    link = fresh()
    assert link.finish(0.0) == ()
    link.connected(1.0)
    assert link.receive(WELCOME, 1.0) == (LinkUp(WELCOME), Send(Done(RUN)), WakeAt(3.0))
    assert link.wake(11.0) == (LinkDown("silent for 10 s"), Send(HELLO), WakeAt(21.0))


def test_an_acknowledgement_of_what_was_not_said_means_nothing() -> None:
    assert up().receive(DoneAck(RUN), 1.0) == ()


def test_a_breach_rests_the_link_and_keeps_the_question() -> None:
    link = up()
    link.ask(1, 0.0)
    assert link.fail("bad Ask", 1.0) == (LinkDown("bad Ask"), WakeAt(21.0))
    assert link.fail("again", 2.0) == (WakeAt(22.0),)
    assert link.wake(22.0) == (Send(HELLO), WakeAt(32.0))
    assert link.receive(WELCOME, 23.0)[1] == Send(ask(1, 2))
    assert fresh().fail("early", 0.0) == ()


@pytest.mark.parametrize(
    "message",
    [
        HELLO,
        Ask(RUN, Part.RESULT, 1, 1),
        Get(1, bytes(32), 0, 1, 1 << 20, 1),
        Credit(1, 1),
        Cancel(1),
        Data(1, 0),
        Err(1, "no"),
        Done(RUN),
    ],
)
def test_what_only_askers_say_is_a_breach(message: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="from a, which answers here"):
        up().receive(message, 1.0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (manifest(1, sender=B), "sender b, not a"),
        (manifest(1, run=OTHER_RUN), "run 0000"),
        (manifest(2), "round 2, not 1"),
        (replace(manifest(1), part=Part.STATE), "part state, not result"),
        (replace(manifest(1), tensors=SPECS[:1]), "schema"),
        (
            replace(
                manifest(1), tensors=(*SPECS, TensorSpec("params", "x", "bool", (), bytes(32)))
            ),
            "schema",
        ),
    ],
)
def test_a_manifest_that_is_not_theirs_of_our_run_is_a_breach(wrong: Any, why: str) -> None:
    link = up()
    link.ask(1, 0.0)
    with pytest.raises(RemoteProtocolError, match=why):
        link.receive(offer_of(encode_document(wrong), 1), 1.0)


@pytest.mark.parametrize(
    "signature",
    [
        bytes(64),
        sign_snapshot(SECRET, name_of(2)),  # a's word for another round
        sign_snapshot(b"b" * 32, name_of(1)),  # another peer's word for this one
        sign(SECRET, Purpose.VIEW, name_of(1)),  # a's word about something else
        sign(SECRET, Purpose.SNAPSHOT, encoded(1)),  # of the manifest, not of its name
    ],
    ids=["none", "round", "peer", "purpose", "body"],
)
def test_a_manifest_that_its_sender_did_not_sign_is_a_breach(signature: bytes) -> None:
    link = up()
    link.ask(1, 0.0)
    with pytest.raises(RemoteProtocolError, match="manifest of a: the signature does not fit"):
        link.receive(replace(offer(1, 1), signature=signature), 1.0)
    assert link.receive(offer(1, 1), 1.0) == (answered(1),)


def test_an_answer_to_a_question_not_yet_put_is_a_breach() -> None:
    link = up()
    link.ask(1, 0.0)
    with pytest.raises(RemoteProtocolError, match="attempt 2 of 1"):
        link.receive(offer(1, 2), 1.0)


def test_a_welcome_under_another_name_is_a_breach() -> None:
    link = fresh()
    link.connected(0.0)
    with pytest.raises(RemoteProtocolError, match="a calls itself b"):
        link.receive(Welcome(B, 0), 1.0)


def test_a_result_may_be_plain_or_coded_as_the_run_says_and_nothing_else() -> None:
    coded = (TensorSpec("params", "w", "bfloat16", (3,), bytes(32)),)
    link = Link(HELLO, neighbour=A, sign_key=SIGN_KEY, coded=schema_digest(coded))
    link.connected(0.0)
    link.receive(WELCOME, 0.0)

    def hear(round_no: int, *tensors: TensorSpec) -> Any:
        link.ask(round_no, 1.0)
        told = encode_document(replace(manifest(round_no), tensors=tensors))
        return link.receive(offer_of(told, round_no, round_no=round_no), 1.0)[0]

    assert isinstance(hear(1, *coded), Answered)
    assert isinstance(hear(2, *SPECS), Answered)
    with pytest.raises(RemoteProtocolError, match="schema"):
        hear(3, replace(coded[0], dtype="float16"))


STEP_SPECS = (
    TensorSpec("params", "w", "uint8", (14,), bytes(32)),
    TensorSpec("buffers", "n", "int64", (), bytes(32)),
)


def step_to(round_no: int, **other: Any) -> SnapshotManifest:
    """The step to a's result of this round from the one before."""
    made = replace(
        manifest(round_no), part=Part.STEP, base=name_of(round_no - 1), tensors=STEP_SPECS
    )
    return replace(made, **other)


def stepping() -> Link:
    """A link of a run whose codec sends steps, with a question of round 3 by one who has 2."""
    link = Link(HELLO, neighbour=A, sign_key=SIGN_KEY, stepped=schema_digest(STEP_SPECS))
    link.connected(0.0)
    link.receive(WELCOME, 0.0)
    (said, _) = link.ask(3, 0.0, holds=name_of(2))
    assert said == Send(replace(ask(3, 1), holds=name_of(2)))
    return link


def test_a_step_from_what_we_hold_comes_with_the_answer() -> None:
    step = encode_document(step_to(3))
    (heard,) = stepping().receive(replace(offer(3, 1), step=step), 1.0)
    assert heard == replace(answered(3), step=Step(step_to(3), digest(step)))


def test_an_answer_without_a_step_is_the_whole_result() -> None:
    assert stepping().receive(offer(3, 1), 1.0) == (answered(3),)


def test_where_the_codec_has_no_steps_nobody_says_what_is_held() -> None:
    link = up()
    assert link.ask(3, 0.0, holds=name_of(2))[0] == Send(ask(3, 1))
    with pytest.raises(RemoteProtocolError, match="a step of a: schema"):
        link.receive(replace(offer(3, 1), step=encode_document(step_to(3))), 1.0)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (step_to(3, sender="b"), "manifest of a step of a: sender b, not a"),
        (step_to(3, part=Part.RESULT), "part result, not step"),
        (step_to(3, run=OTHER_RUN), "run 00"),
        (step_to(4, base=name_of(2)), "round 4, not 3"),
        (step_to(3, tensors=SPECS), "schema"),
        (step_to(3, tensors=(*STEP_SPECS, STEP_SPECS[0])), "schema"),
        (step_to(3, base=name_of(1)), f"goes on from {name_of(1).hex()[:12]}, we hold"),
        (step_to(3, base=b""), "goes on from nothing, we hold"),
    ],
)
def test_a_step_that_does_not_fit_is_a_breach(step: SnapshotManifest, why: str) -> None:
    link = stepping()
    with pytest.raises(RemoteProtocolError, match=why):
        link.receive(replace(offer(3, 1), step=encode_document(step)), 1.0)
    assert link.receive(offer(3, 1), 1.0) == (answered(3),)  # the question still stands


def test_a_step_is_a_breach_to_one_who_said_to_hold_nothing() -> None:
    link = stepping()
    link.ask(3, 1.0)
    step = encode_document(step_to(3, base=b""))
    with pytest.raises(RemoteProtocolError, match="goes on from nothing, we hold nothing"):
        link.receive(replace(offer(3, 2), step=step), 1.0)


def test_a_step_from_what_was_held_at_an_earlier_attempt_is_passed_over() -> None:
    link = stepping()
    link.ask(3, 1.0, holds=name_of(1))
    step = encode_document(step_to(3))
    assert link.receive(replace(offer(3, 1), step=step), 1.0) == (answered(3),)


def test_an_answer_that_comes_before_a_new_question_could_be_put_is_no_breach() -> None:
    """The link was silent, and the step's pull failed meanwhile: nothing is held any more."""
    link = stepping()
    assert LinkDown("silent for 10 s") in link.wake(10.0)
    assert link.ask(3, 11.0) == ()
    step = encode_document(step_to(3))
    assert link.receive(replace(offer(3, 1), step=step), 12.0) == (answered(3), WakeAt(22.0))

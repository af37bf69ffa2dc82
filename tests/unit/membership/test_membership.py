"""What a node says to its coordinator, and what it makes of the answers, which the test plays."""

from dataclasses import replace

import pytest

from protocol.errors import ConfigError
from protocol.ids import RunId
from protocol.manifest import Manifest
from protocol.wire.codec import COORDINATOR
from protocol.wire.membership import Membership
from protocol.wire.membership_effects import (
    CoordinatorBack,
    CoordinatorLost,
    Effect,
    GaveUp,
    Refused,
    Send,
    Settled,
    Unsettled,
    ViewChanged,
    WakeAt,
)
from protocol.wire.messages import (
    WIRE_VERSION,
    Admitted,
    CoordinatorMessage,
    Epoch,
    Join,
    Lease,
    Leave,
    Member,
    Option,
    Ready,
    Refuse,
    Renew,
    Settle,
    ShowView,
    SignedView,
    View,
    ViewPart,
)
from protocol.wire.signing import seal_view, sign_public

SECRET = bytes(range(32))
RUN = RunId(b"r" * 16)
LEASE_S = 15.0
WHOLE = Manifest({"run.rounds": 3, "solver.lr": 0.05})
READY = Ready(b"s" * 32, b"i" * 32)
# 0.75 + 128 / 512 = 1: this process waits exactly as long as `Patience` says.
JOIN = Join(
    version=WIRE_VERSION,
    token=b"t" * 16,
    name="a",
    role="peer",
    instance=b"\x80" + bytes(7),
    address="tcp://10.0.0.1:4000",
    sign_key=bytes(32),
    wishes=(),
)


def again(counter: int) -> Join:
    """What a node says that has seen a view of this epoch."""
    return replace(JOIN, seen=Epoch(1, counter))


def machine(join: Join = JOIN) -> Membership:
    return Membership(join, sign_key=sign_public(SECRET), where="tcp://10.0.0.5:7733")


def signed(counter: int, *, state: str = "joining", run: bytes = RUN) -> SignedView:
    member = Member("a", "peer", state, JOIN.address, bytes(32), bytes(32), 0)
    return seal_view(View(run, "town", Epoch(1, counter), 2, (), (member,)), SECRET)


def admitted(counter: int = 1, *, settled: bool = True, options: Manifest = WHOLE) -> Admitted:
    return Admitted(RUN, settled, options.options(), LEASE_S, signed(counter))


def hear(node: Membership, message: CoordinatorMessage, now_s: float = 0.0) -> tuple[Effect, ...]:
    return node.receive(COORDINATOR.encode(message), now_s)


def member(*, ready: bool = True) -> Membership:
    """One that is admitted at 0 s, and ready."""
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    hear(node, admitted(1))
    if ready:
        node.ready(READY.schema, READY.init, 0.0)
        hear(node, signed(2, state="ready"))
    return node


def sent(effects: tuple[Effect, ...]) -> list[CoordinatorMessage]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


# -- joining ---------------------------------------------------------------------------------


def test_a_node_joins_as_soon_as_it_is_connected_and_again_until_it_is_heard() -> None:
    node = machine()
    assert node.start(0.0) == (WakeAt(2.0),)
    assert node.wake(2.0) == (WakeAt(4.0),)  # not connected: nothing to say
    assert node.connected(3.0) == (Send(JOIN), WakeAt(5.0))
    assert node.wake(5.0) == (Send(JOIN), WakeAt(9.0))
    assert node.wake(9.0) == (Send(JOIN), WakeAt(17.0))
    assert node.wake(17.0) == (Send(JOIN), WakeAt(27.0))  # at most 10 s apart


def test_a_settled_run_is_taken_as_it_is() -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    effects = hear(node, admitted())
    assert [type(effect) for effect in effects] == [ViewChanged, Settled, WakeAt]
    assert effects[1:] == (Settled(RUN, WHOLE), WakeAt(5.0))


def test_the_first_node_is_asked_for_the_manifest_and_sends_it() -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    pinned = Manifest({"solver.lr": 0.05})
    assert Unsettled(pinned) in hear(node, admitted(settled=False, options=pinned))
    assert node.settle(WHOLE, 1.0) == (Send(Settle(WHOLE.options())), WakeAt(3.0))
    assert node.wake(3.0) == (Send(Settle(WHOLE.options())), WakeAt(7.0))
    assert Settled(RUN, WHOLE) in hear(node, admitted(), 4.0)


def test_an_unsettled_run_is_told_once() -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    hear(node, admitted(settled=False, options=Manifest()))
    effects = hear(node, admitted(settled=False, options=Manifest()))
    assert [type(effect) for effect in effects] == [WakeAt]


def test_another_nodes_manifest_may_stand_instead() -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    hear(node, admitted(settled=False, options=Manifest()))
    node.settle(WHOLE, 0.0)
    other = Manifest({"solver.lr": 0.1})
    assert Settled(RUN, other) in hear(node, admitted(options=other))


def test_a_manifest_against_a_wish_is_refused_by_the_node_itself() -> None:
    wishes = (Option("mixer.gamma", 5.0), Option("solver.lr", 0.1))
    node = machine(replace(JOIN, wishes=wishes))
    node.start(0.0)
    node.connected(0.0)
    effects = hear(node, admitted())
    assert sent(effects) == [Leave("asked for other options")]
    assert effects[-1] == Refused(
        "mixer.gamma: you asked for 5.0, the run has no such option; "
        "solver.lr: you asked for 0.1, the run has 0.05"
    )
    assert node.wake(100.0) == ()


def test_wishes_that_contradict_themselves_are_no_wishes() -> None:
    twice = (Option("solver.lr", 1), Option("solver.lr", 2))
    with pytest.raises(ConfigError, match=r"solver\.lr stands twice"):
        machine(replace(JOIN, wishes=twice))


def test_a_refusal_ends_it() -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    assert hear(node, Refuse("the token is not this run's")) == (
        Refused("the token is not this run's"),
    )
    assert node.is_over
    assert (node.connected(1.0), node.disconnected(1.0), node.leave("x", 1.0)) == ((), (), ())
    assert hear(node, admitted()) == ()
    assert node.settle(WHOLE, 1.0) == ()


def test_a_node_that_reaches_nobody_gives_up_and_says_what_it_tried() -> None:
    node = machine()
    node.start(0.0)
    (told,) = node.wake(60.0)
    assert told == GaveUp(
        "no coordinator at tcp://10.0.0.5:7733: tried for 60 s; nothing answers there: it is not "
        "running, a firewall is in the way, or its key is another than the join string's"
    )


def test_a_node_that_is_connected_but_not_heard_gives_up_with_another_guess() -> None:
    node = machine()
    node.start(0.0)
    node.connected(1.0)
    (told,) = node.wake(60.0)
    assert isinstance(told, GaveUp)
    assert "connected but does not answer: it may speak another wire version" in told.reason


def test_what_the_transport_knows_of_a_broken_link_is_told() -> None:
    node = machine()
    node.start(0.0)
    node.disconnected(1.0, "the link was closed: bad greeting")
    (told,) = node.wake(60.0)
    assert isinstance(told, GaveUp)
    assert told.reason.endswith("tried for 60 s; the link was closed: bad greeting")


# -- getting ready -----------------------------------------------------------------------------


def test_a_node_says_that_it_is_ready_until_the_view_says_so_too() -> None:
    node = member(ready=False)
    assert node.ready(READY.schema, READY.init, 1.0) == (Send(READY), WakeAt(3.0))
    hear(node, Lease(LEASE_S, Epoch(1, 1)), 2.0)
    assert sent(node.wake(3.0)) == [READY]
    hear(node, signed(2, state="ready"), 3.0)
    assert sent(node.wake(5.0)) == [Renew(Epoch(1, 2), 0, "lobby")]


def test_ready_while_the_link_is_down_is_said_when_it_is_up_again() -> None:
    node = member(ready=False)
    node.disconnected(1.0)
    assert sent(node.ready(READY.schema, READY.init, 2.0)) == []
    assert sent(node.connected(3.0)) == [again(1)]
    assert sent(hear(node, admitted(2), 3.0)) == [READY]


# -- keeping the lease ---------------------------------------------------------------------------


def test_a_lease_is_renewed_three_times_in_its_length_with_what_was_reported() -> None:
    node = member()
    node.report(7, "train", 1.0)
    node.wake(2.0)  # the answer to Ready came before this
    effects = node.wake(7.0)
    assert effects == (Send(Renew(Epoch(1, 2), 7, "train")), WakeAt(12.0))


def test_two_unanswered_messages_make_a_node_register_again() -> None:
    node = member()
    said = [sent(node.wake(now_s)) for now_s in (2.0, 7.0, 12.0)]
    renew = Renew(Epoch(1, 2), 0, "lobby")
    assert said == [[renew], [renew], [again(2)]]


def test_a_coordinator_that_is_silent_for_a_lease_is_lost_once_and_back_when_heard() -> None:
    node = member()
    node.disconnected(1.0)
    for now_s in (2.0, 7.0, 12.0):
        node.wake(now_s)
    effects = node.wake(15.0)
    assert effects[0] == CoordinatorLost("tcp://10.0.0.5:7733 silent for 15 s: the link broke")
    assert not any(isinstance(e, CoordinatorLost) for e in node.wake(600.0))
    assert sent(node.connected(601.0)) == [again(2)]
    effects = hear(node, admitted(3), 601.0)
    assert isinstance(effects[0], CoordinatorBack)
    assert not node.is_over


def test_a_dead_coordinator_never_ends_an_admitted_node_nor_makes_it_spin() -> None:
    node = member()
    node.disconnected(0.0)
    now_s, wakes = 0.0, 0
    while now_s < 3600.0:
        effects = node.wake(now_s)
        (wake,) = [effect for effect in effects if isinstance(effect, WakeAt)]
        assert wake.at_s > now_s
        now_s, wakes = wake.at_s, wakes + 1
    assert wakes < 3600 / 2


def test_a_lease_of_nothing_does_not_make_a_node_spin() -> None:
    node = member()
    hear(node, Lease(0.0, Epoch(1, 2)), 0.0)
    assert node.wake(2.0)[-1] == WakeAt(2.0 + 1.0 / 3)


def test_goodbye_is_said_once_and_to_a_coordinator_that_knows_us() -> None:
    node = member()
    assert node.leave("done", 1.0) == (Send(Leave("done")),)
    assert node.leave("done", 1.0) == ()
    assert machine().leave("never came", 0.0) == ()


# -- believing -----------------------------------------------------------------------------------


def test_a_newer_view_is_told_and_an_older_or_equal_one_is_not() -> None:
    node = member()
    told = [
        [e.view.epoch.counter for e in hear(node, signed(n)) if isinstance(e, ViewChanged)]
        for n in (5, 5, 4, 6)
    ]
    assert told == [[5], [], [], [6]]
    assert node.view is not None
    assert node.view.epoch == Epoch(1, 6)


def test_a_restarted_coordinators_view_is_newer_whatever_its_counter() -> None:
    node = member()
    hear(node, signed(900))
    view = View(RUN, "town", Epoch(2, 0), 2, (), ())
    assert any(isinstance(e, ViewChanged) for e in hear(node, seal_view(view, SECRET)))


FORGED = [
    SignedView(signed(9).body, bytes(64)),
    seal_view(View(RUN, "town", Epoch(1, 9), 2, (), ()), bytes(32)),
    SignedView(b"\x00", bytes(64)),
    signed(9, run=b"o" * 16),
    Admitted(b"o" * 16, True, (), LEASE_S, signed(9, run=b"o" * 16)),
    Admitted(RUN, True, (Option("a", 1), Option("a", 1)), LEASE_S, signed(9)),
    Leave("you"),
    Renew(Epoch(1, 1), 0, "lobby"),
]


@pytest.mark.parametrize("message", FORGED, ids=lambda m: type(m).__name__)
def test_what_cannot_be_believed_is_logged_and_dropped(
    message: CoordinatorMessage, caplog: pytest.LogCaptureFixture
) -> None:
    node = member()
    view = node.view
    effects = hear(node, message, 1.0)
    assert {type(effect) for effect in effects} == {WakeAt}
    assert node.view == view
    assert "dropped a message of the coordinator" in caplog.text


def test_bytes_that_are_no_message_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    node = member()
    assert {type(effect) for effect in node.receive(b"\xff\x00", 1.0)} == {WakeAt}
    assert "dropped a message of the coordinator" in caplog.text


def test_a_lease_before_the_admission_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    hear(node, Lease(LEASE_S, Epoch(1, 1)))
    assert "a Lease before Admitted" in caplog.text


def test_a_view_before_the_admission_is_dropped_for_what_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    assert {type(effect) for effect in hear(node, signed(2, state="ready"))} == {WakeAt}
    assert "a view before Admitted" in caplog.text
    assert node.view is None


# -- views from elsewhere, and views shown ------------------------------------------------------


def test_a_coordinator_that_asks_is_shown_the_newest_view_in_parts_and_told_the_rest_again() -> (
    None
):
    node = member()
    newest = signed(2, state="ready")  # as `member` has it
    assert sent(hear(node, ShowView(0), 1.0)) == [
        ViewPart(0, len(newest.body), newest.signature, newest.body)
    ]
    rest = ViewPart(100, len(newest.body), newest.signature, newest.body[100:])
    assert sent(hear(node, ShowView(100), 1.0)) == [rest]
    node.disconnected(2.0)
    node.connected(3.0)
    assert sent(hear(node, ShowView(len(newest.body)), 3.0)) == [again(2)]


def test_a_coordinator_that_asks_for_a_view_it_never_sent_is_not_answered() -> None:
    node = machine()
    node.start(0.0)
    node.connected(0.0)
    assert sent(hear(node, ShowView(0), 1.0)) == []


def test_a_node_believes_no_passed_view_before_it_knows_its_run() -> None:
    node = machine()
    node.start(0.0)
    assert node.overhear(signed(9)) == ()
    assert node.view is None


def test_a_passed_view_is_no_sign_of_life_of_the_coordinator() -> None:
    node = member()
    node.disconnected(1.0)
    (changed,) = node.overhear(signed(3, state="ready"))
    assert isinstance(changed, ViewChanged)
    lost = [e for e in node.wake(15.0) if isinstance(e, CoordinatorLost)]
    assert len(lost) == 1


def test_a_view_in_which_the_node_is_revoked_ends_it() -> None:
    node = member()
    assert node.overhear(signed(3, state="revoked"))[1:] == (
        Refused("this node was revoked, by the coordinator's signed word"),
    )
    assert node.is_over

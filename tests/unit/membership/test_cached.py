"""A node that goes on by the view that it has kept, while its coordinator does not answer."""

from dataclasses import replace

from protocol.manifest import Manifest
from protocol.wire.membership import Membership
from protocol.wire.membership_effects import (
    CoordinatorBack,
    CoordinatorLost,
    GaveUp,
    Refused,
    Settled,
    ViewChanged,
    WakeAt,
)
from protocol.wire.messages import Admitted, Epoch, Join, Member, SignedView, View
from protocol.wire.signing import seal_view, sign_public
from tests.unit.membership.test_membership import (
    JOIN,
    LEASE_S,
    READY,
    RUN,
    SECRET,
    WHOLE,
    again,
    hear,
    sent,
)

OTHER = Member("b", "peer", "ready", "tcp://10.0.0.2:4000", b"k" * 32, b"v" * 32, 4)


def kept(*, state: str = "ready", incarnation: int = 1, counter: int = 7) -> SignedView:
    me = Member("a", "peer", state, JOIN.address, bytes(32), bytes(32), 4)
    view = View(
        RUN,
        "town",
        Epoch(incarnation, counter),
        2,
        ("a", "b"),
        (me, OTHER),
        settled=True,
        options=WHOLE.options(),
        schema=READY.schema,
        init=READY.init,
    )
    return seal_view(view, SECRET)


def node_with(cached: SignedView, join: Join = JOIN) -> Membership:
    node = Membership(
        join, sign_key=sign_public(SECRET), where="tcp://10.0.0.5:7733", cached=cached
    )
    node.start(0.0)
    return node


def test_after_five_seconds_without_an_answer_a_node_goes_on_by_its_view() -> None:
    node = node_with(kept())
    assert node.wake(4.9) == (WakeAt(5.0),)
    lost, changed, settled, _wake = node.wake(5.0)
    assert isinstance(lost, CoordinatorLost)
    assert "tcp://10.0.0.5:7733 has not answered in 5 s: nothing answers there" in lost.reason
    assert "going on by the view of epoch 1.7, which was kept" in lost.reason
    assert isinstance(changed, ViewChanged)
    assert [m.address for m in changed.view.members] == [JOIN.address, OTHER.address]
    assert settled == Settled(RUN, WHOLE)
    assert not sent(node.ready(READY.schema, READY.init, 6.0))
    for at_s in range(7, 500):  # it neither gives up nor tells twice
        assert {type(effect) for effect in node.wake(float(at_s))} == {WakeAt}


def test_it_registers_with_the_coordinator_when_that_is_back() -> None:
    node = node_with(kept())
    node.wake(5.0)
    node.ready(READY.schema, READY.init, 6.0)
    assert sent(node.connected(20.0)) == [again(7)]  # the newest view that it has seen
    back = Admitted(
        RUN, True, WHOLE.options(), LEASE_S, kept(state="lost", incarnation=2, counter=1)
    )
    effects = hear(node, back, 20.1)
    assert isinstance(effects[0], CoordinatorBack)
    assert sent(effects) == [READY]
    assert not [effect for effect in effects if isinstance(effect, Settled)]  # that was told


def test_a_coordinator_that_answers_in_time_is_believed_and_no_kept_view() -> None:
    node = node_with(kept())
    node.connected(1.0)
    newer = kept(counter=9)
    effects = hear(node, Admitted(RUN, True, WHOLE.options(), LEASE_S, newer), 4.0)
    assert [e.view.epoch for e in effects if isinstance(e, ViewChanged)] == [Epoch(1, 9)]
    assert {type(effect) for effect in node.wake(5.0)} == {WakeAt}
    assert node.view is not None
    assert node.view.epoch == Epoch(1, 9)


def test_wishes_and_models_are_compared_as_the_coordinator_would() -> None:
    wishes = Manifest({"solver.lr": 0.5}).options()
    (refused, *_) = node_with(kept(), replace(JOIN, wishes=wishes)).wake(5.0)
    assert refused == Refused("solver.lr: you asked for 0.5, the run has 0.05")
    node = node_with(kept())
    node.wake(5.0)
    (refused, *_) = node.ready(READY.schema, b"j" * 32, 6.0)
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("init: your initial model (6a6a6a6a) is not the run's (696969")


def test_a_forged_view_is_dropped_and_the_node_waits_for_the_coordinator() -> None:
    forged = replace(kept(), signature=bytes(64))
    node = node_with(forged)
    assert {type(effect) for effect in node.wake(5.0)} == {WakeAt}
    assert node.view is None
    assert [type(effect) for effect in node.wake(60.0)] == [GaveUp]

"""One common model, as the round machine sees it: relays, and a start that has come apart."""

from dataclasses import replace

import pytest

from peer.effects import Order, Serve
from peer.machine import Phase
from peer.roles import Exchange
from peer.work import (
    Adopt,
    Adopted,
    Evaluate,
    Evaluated,
    Inspect,
    Mix,
    MixDone,
    Publish,
    Published,
    TrainDone,
)
from protocol.ids import PeerId
from protocol.wire.messages import Epoch, Member, Part, View
from tests.unit.machine.stage import SCORE, Stage, digest_of, manifest_of, ref_of, view_of


def with_relay(states: dict[str, str], founding: str, *, relay: str = "ready") -> View:
    view = view_of(states, founding)
    member = Member("relay", "relay", relay, "tcp://127.0.0.1:99", b"r" * 32, bytes(32), 0)
    return replace(view, members=tuple(sorted((*view.members, member), key=lambda m: m.name)))


def found(exchange: Exchange, *, relay: bool = False) -> Stage:
    stage = Stage("bc", exchange=exchange)
    if relay:
        view = with_relay(dict.fromkeys("abc", "ready"), "abc")
        stage.said += stage.machine.view(view, stage.now_s)
    else:
        stage.found()
    return stage


def apart() -> Stage:
    """In MIX of round 2, and told to adopt the state of b."""
    stage = found(Exchange.COMMON)
    stage.work()
    stage.give("b", 1)
    stage.give("c", 1)
    stage.said.clear()
    stage.said += stage.machine.mixed(MixDone(2, (), (), 0.0, adopt="b"), stage.now_s)
    return stage


def test_a_start_that_has_come_apart_is_fetched_before_the_round_goes_on() -> None:
    stage = apart()
    assert [(q[0], q[1]) for q in stage.questions(stage.said)] == [("b", 1)]
    manifest = replace(manifest_of("b", 1), part=Part.STATE)
    effects = stage.machine.answered(PeerId("b"), manifest, digest_of("b", 1), stage.now_s)
    assert [f.slot for f in stage.fetches(effects)] == [2]
    (order,) = stage.machine.pulled(PeerId("b"), ref_of("b", 1), stage.now_s)
    assert order.command == Adopt("b", ref_of("b", 1))  # type: ignore[union-attr]
    mix = stage.mix(stage.machine.adopted(Adopted("b", ""), stage.now_s))
    assert mix is not None
    assert not mix.may_adopt
    assert len(mix.inputs) == 2


def test_a_state_that_does_not_fit_means_a_local_round() -> None:
    stage = apart()
    mix = stage.mix(stage.machine.adopted(Adopted("b", "torn"), stage.now_s))
    assert mix is not None
    assert mix.inputs == ()


def test_a_state_that_does_not_come_means_a_local_round() -> None:
    stage = apart()
    assert stage.mix(stage.pass_(9.9)) is None
    mix = stage.mix(stage.pass_(0.2))
    assert mix is not None
    assert mix.inputs == ()


def test_a_state_that_is_here_is_not_given_up_while_the_trainer_adopts_it() -> None:
    stage = apart()
    manifest = replace(manifest_of("b", 1), part=Part.STATE)
    stage.machine.answered(PeerId("b"), manifest, digest_of("b", 1), stage.now_s)
    stage.pass_(9.9)
    (order,) = stage.machine.pulled(PeerId("b"), ref_of("b", 1), stage.now_s)
    assert isinstance(order, Order)
    assert stage.mix(stage.pass_(60.0)) is None  # a large model, a busy machine
    mix = stage.mix(stage.machine.adopted(Adopted("b", ""), stage.now_s))
    assert mix is not None
    assert len(mix.inputs) == 2


def test_a_state_that_comes_when_the_round_has_gone_on_is_not_adopted_and_its_sender_is_asked() -> (
    None
):
    stage = apart()
    manifest = replace(manifest_of("b", 1), part=Part.STATE)
    stage.machine.answered(PeerId("b"), manifest, digest_of("b", 1), stage.now_s)
    assert stage.mix(stage.pass_(10.1)) is not None  # a local round
    asked = stage.questions(stage.work())
    assert ("c", 2) in asked
    assert "b" not in dict(asked)  # its state is still on its way
    effects = list(stage.machine.pulled(PeerId("b"), ref_of("b", 1), stage.now_s))
    assert stage.questions(effects) == [("b", 2)]
    assert not [e for e in effects if isinstance(e, Order)]
    stage.give("b", 2)
    assert stage.machine.missing() == ("c",)


def test_with_a_relay_nobody_else_is_asked() -> None:
    stage = found(Exchange.COMMON, relay=True)
    assert stage.questions(stage.work()) == [("relay", 1)]
    mix = stage.mix(stage.give("relay", 1))
    assert mix is not None
    assert mix.relay == "relay"
    assert not mix.may_adopt


def test_a_relay_beside_neighbours_is_mixed_when_it_comes_and_never_waited_for() -> None:
    stage = found(Exchange.NEIGHBOURS, relay=True)
    assert ("relay", 1) in stage.questions(stage.work())
    stage.give("b", 1)
    stage.give("c", 1)
    assert stage.machine.phase is Phase.MIX
    record = stage.record(stage.work())
    assert (record.missing, record.degraded) == ((), False)
    stage.give("relay", 1)
    stage.give("b", 2)
    stage.give("c", 2)
    record = stage.record(stage.work())
    assert record.stale == {"relay": 1}
    assert not record.degraded  # nobody was promised a newer one


def test_peers_publish_their_update_where_a_relay_wants_it() -> None:
    stage = found(Exchange.NEIGHBOURS, relay=True)
    stage.work()
    orders = [e.command for e in stage.said if hasattr(e, "command")]
    assert [o.update for o in orders if isinstance(o, Publish)] == [True]


def test_what_a_round_keeps_for_a_relay_is_what_it_publishes_whoever_goes_in_between() -> None:
    stage = found(Exchange.NEIGHBOURS, relay=True)
    machine, now_s = stage.machine, stage.now_s
    machine.mixed(MixDone(1, (), (), 0.0), now_s)
    said = list(machine.trained(TrainDone(1, 1, 0.5, 0.0), now_s))
    view = with_relay(dict.fromkeys("abc", "ready"), "abc", relay="left")
    machine.view(replace(view, epoch=Epoch(1, 2)), now_s)
    scores = Evaluated(1, SCORE, SCORE, SCORE, "trained", 0.0)
    said += machine.evaluated(scores, now_s)
    orders = [e.command for e in said if isinstance(e, Order)]
    assert orders == [Evaluate(1, update=True), Publish(1, update=True)]


def test_a_relay_collects_the_results_of_its_own_round_and_trains_nothing() -> None:
    stage = Stage("bc", exchange=Exchange.RESULTS)
    view = view_of(dict.fromkeys("bc", "ready"), "bc")
    stage.said += stage.machine.view(view, stage.now_s)
    assert stage.questions(stage.said) == [("b", 1), ("c", 1)]
    stage.give("b", 1)
    stage.give("c", 1)
    stage.said += stage.machine.mixed(MixDone(1, (), (), 0.0), stage.now_s)
    assert stage.ordered(stage.said) == [Inspect, Inspect, Mix, Publish]


def test_a_relay_of_own_starts_asks_for_updates() -> None:
    stage = Stage("bc", exchange=Exchange.UPDATES)
    view = view_of(dict.fromkeys("bc", "ready"), "bc")
    effects = stage.machine.view(view, stage.now_s)
    parts = {e.part for e in effects if hasattr(e, "part")}
    assert parts == {Part.UPDATE}


def test_what_is_late_is_no_part_of_a_common_model() -> None:
    stage = found(Exchange.COMMON, relay=True)
    stage.up("relay")
    stage.work()
    stage.give("relay", 1)
    stage.work()
    stage.pass_(60.0)  # the relay says nothing of round 2
    orders = [e.command for e in stage.said if isinstance(e, Order)]
    last = [order for order in orders if isinstance(order, Mix)][-1]
    assert (last.round_no, last.inputs) == (3, ())
    record = stage.record(stage.work())
    assert (record.stale, record.missing) == ({}, ("relay",))


@pytest.mark.parametrize(
    ("exchange", "asked"),
    [
        (Exchange.COMMON, [("b", 1), ("c", 1)]),  # every peer can aggregate itself
        (Exchange.RELAY, [("relay", 1)]),  # nobody else has what is needed
    ],
)
def test_a_relay_whose_lease_ran_out_is_left_only_where_peers_can_do_without(
    exchange: Exchange, asked: list[tuple[str, int]]
) -> None:
    stage = Stage("bc", exchange=exchange)
    view = with_relay(dict.fromkeys("abc", "ready"), "abc", relay="lost")
    stage.said += stage.machine.view(view, stage.now_s)
    assert stage.questions(stage.work()) == asked


def test_a_relay_serves_until_its_peers_are_done() -> None:
    stage = Stage("bc", exchange=Exchange.RESULTS, rounds=1)
    stage.said += stage.machine.view(view_of(dict.fromkeys("bc", "ready"), "bc"), stage.now_s)
    stage.up()
    stage.give("b", 1)
    stage.give("c", 1)
    stage.machine.mixed(MixDone(1, (), (), 0.0), stage.now_s)
    effects = stage.machine.published(Published(1, ref_of("a", 1), bytes(32)), stage.now_s)
    assert [e.round_no for e in Stage.then(effects) if isinstance(e, Serve)] == [1]
    assert stage.record(effects).trained is None
    assert stage.farewells(effects) == ["b", "c"]
    for name in "bc":
        assert stage.machine.phase is Phase.DRAIN
        stage.machine.said_done(PeerId(name), stage.now_s)
        stage.said = [*stage.machine.knows_done(PeerId(name), stage.now_s)]
    assert stage.ended(stage.said) == "finished"

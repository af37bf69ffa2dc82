"""What a peer does in a run where nothing goes wrong."""

from peer.machine import Phase
from peer.roles import Exchange
from peer.work import Evaluate, Inspect, Mix, Publish, Train
from tests.unit.machine.stage import Stage, digest_of


def test_the_lobby_waits_for_the_founders() -> None:
    stage = Stage()
    stage.see({"a": "ready", "b": "ready"})
    assert stage.phase() is Phase.LOBBY
    stage.found()
    assert stage.machine.round_no == 1


def test_round_one_starts_from_the_initial_model_and_asks_nobody() -> None:
    stage = Stage()
    stage.found()
    mix = stage.mix(stage.said)
    assert stage.questions(stage.said) == []
    assert mix is not None
    assert mix.inputs == ()
    assert stage.phase() is Phase.MIX


def test_a_round_is_mixed_trained_evaluated_and_published_in_this_order() -> None:
    stage = Stage()
    stage.found()
    stage.work()
    assert stage.ordered(stage.said) == [Mix, Train, Evaluate, Publish]


def test_round_two_asks_every_neighbour_for_round_one() -> None:
    stage = Stage("bcd")
    stage.found()
    assert stage.questions(stage.work()) == [("b", 1), ("c", 1), ("d", 1)]


def test_a_ring_asks_two() -> None:
    stage = Stage("bcde", topology="ring")
    stage.found()
    assert stage.questions(stage.work()) == [("b", 1), ("e", 1)]


def test_a_snapshot_is_pulled_then_inspected_then_mixed() -> None:
    stage = Stage("b")
    stage.found()
    stage.work()
    assert [f.neighbour for f in stage.fetches(stage.offer("b", 1))] == ["b"]
    assert stage.ordered(stage.pull("b", 1)) == [Inspect]
    mix = stage.mix(stage.judge("b", 1))
    assert mix is not None
    assert [(i.snapshot.digest, i.freshness) for i in mix.inputs] == [(digest_of("b", 1), 1.0)]


def test_inputs_are_sorted_by_sender_whatever_the_order_of_arrival() -> None:
    stage = Stage("bcd")
    stage.found()
    stage.work()
    stage.give("d", 1)
    stage.give("b", 1)
    mix = stage.mix(stage.give("c", 1))
    assert mix is not None
    assert [i.snapshot.digest for i in mix.inputs] == [digest_of(n, 1) for n in "bcd"]


def test_a_newer_result_counts_as_fresh() -> None:
    stage = Stage("b")
    stage.found()
    stage.work()
    stage.give("b", 2)
    assert stage.record(stage.work()).used == {"b": 2}


def test_what_is_here_already_is_not_asked_for() -> None:
    stage = Stage("bc")
    stage.found()
    stage.work()
    stage.give("b", 2)
    stage.give("c", 1)
    assert stage.questions(stage.work()) == [("c", 2)]


def test_the_two_receive_buffers_of_a_neighbour_alternate() -> None:
    stage = Stage("b")
    stage.found()
    stage.work()
    slots = []
    for round_no in (1, 2, 3):
        slots += [f.slot for f in stage.fetches(stage.give("b", round_no))]
        stage.work()
    assert slots == [0, 1, 0]


def test_a_method_that_shares_nothing_asks_nobody_and_says_no_goodbye() -> None:
    stage = Stage(rounds=2, exchange=Exchange.NONE)
    stage.found()
    stage.work()
    effects = stage.work()
    assert stage.questions(stage.said) == []
    assert stage.farewells(stage.said) == []
    assert stage.ended(effects) == "finished"


def test_a_peer_alone_plays_its_rounds() -> None:
    stage = Stage("", rounds=2)
    stage.found()
    stage.work()
    assert stage.ended(stage.work()) == "finished"


def test_the_record_of_a_good_round_is_not_degraded() -> None:
    stage = Stage()
    stage.found()
    assert not stage.record(stage.work()).degraded
    record = stage.round()
    assert (record.round_no, record.used, record.degraded) == (2, {"b": 1, "c": 1}, False)


def test_rounds_in_which_a_peer_is_not_active_are_passed_over() -> None:
    stage = Stage("bcdefgh", rounds=40, participation=0.25)
    stage.found()
    played = [stage.machine.round_no]
    while stage.phase() is not Phase.DRAIN:
        stage.round()
        played.append(stage.machine.round_no)
    assert 2 <= len(set(played)) <= 25  # two of eight are active: about ten of forty rounds
    assert all(len(stage.machine.asked) <= 2 for _ in played)

"""How long a peer waits for whom, and what it does without them."""

import pytest

from peer.effects import Happened
from peer.machine import Phase
from peer.pace import Arrivals, Pace, freshness, longest
from tests.unit.machine.stage import Stage


def in_round_two(others: str = "bc", *, pace: Pace | None = None, rounds: int = 10) -> Stage:
    stage = Stage(others, pace=pace, rounds=rounds)
    stage.found()
    stage.up()
    stage.work()
    return stage


def test_a_silent_neighbour_is_given_up_once_the_quorum_is_in() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    assert stage.pass_(9.9) == [*stage.pass_(0)]
    assert stage.phase() is Phase.COLLECT
    stage.pass_(0.1)
    assert stage.phase() is Phase.MIX
    record = stage.record(stage.work())
    assert (record.used, record.missing, record.degraded) == ({"b": 1}, ("c",), True)


def test_without_a_quorum_the_bound_ends_the_wait() -> None:
    stage = in_round_two("bcd")
    stage.give("b", 1)  # one of three; two are needed
    for _ in range(6):
        stage.pass_(9.0)
        stage.not_yet("c")
        stage.not_yet("d")
    stage.pass_(5.0)
    assert stage.phase() is Phase.COLLECT
    stage.pass_(1.0)
    assert stage.phase() is Phase.MIX


@pytest.mark.parametrize("others", ["b", "bc", "bcde"])
def test_the_silent_do_not_count_for_the_quorum(others: str) -> None:
    stage = in_round_two(others)
    stage.pass_(9.9)
    assert stage.phase() is Phase.COLLECT
    stage.pass_(0.1)
    assert stage.phase() is Phase.MIX
    assert stage.record(stage.work()).missing == tuple(others)


def test_a_quorum_of_the_living_is_enough_though_most_are_silent() -> None:
    stage = in_round_two("bcde")
    stage.pass_(9.0)
    stage.give("b", 1)  # one of two that live
    stage.not_yet("c")
    stage.pass_(1.0)  # d and e are silent; c is not
    assert stage.phase() is Phase.COLLECT
    stage.pass_(9.0)
    assert stage.phase() is Phase.MIX


def test_a_neighbour_that_shows_life_is_waited_for() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    for _ in range(6):
        stage.pass_(8.0)
        stage.not_yet("c")
    assert stage.phase() is Phase.COLLECT


def test_a_neighbour_whose_result_is_here_is_not_silent_while_the_trainer_looks_at_it() -> None:
    stage = in_round_two(pace=Pace(bound_s=30.0))
    stage.give("b", 1)
    stage.offer("c", 1)
    stage.pull("c", 1)
    stage.pass_(29.9)  # the trainer is busy for longer than a silence
    assert stage.phase() is Phase.COLLECT
    stage.judge("c", 1)
    assert stage.phase() is Phase.MIX
    assert stage.record(stage.work()).used == {"b": 1, "c": 1}


def test_an_inspection_that_does_not_end_is_waited_for_to_the_bound_and_loses_nobody() -> None:
    stage = in_round_two(pace=Pace(bound_s=30.0))
    stage.give("b", 1)
    stage.offer("c", 1)
    stage.pull("c", 1)
    effects = stage.pass_(30.0)
    assert stage.phase() is Phase.MIX
    assert not [e for e in effects if isinstance(e, Happened) and e.event == "lost"]
    assert stage.record(stage.work()).missing == ("c",)


def test_even_a_lively_neighbour_is_not_waited_for_beyond_the_bound() -> None:
    stage = in_round_two(pace=Pace(bound_s=30.0))
    stage.give("b", 1)
    for _ in range(4):
        stage.pass_(7.0)
        stage.not_yet("c")
    assert stage.phase() is Phase.COLLECT
    stage.pass_(2.0)
    assert stage.phase() is Phase.MIX


def test_the_bound_grows_with_what_a_neighbour_says_that_it_needs() -> None:
    stage = in_round_two("b")
    for _ in range(50):
        stage.not_yet("b", eta_s=100.0)
        stage.pass_(9.9)
    stage.not_yet("b", eta_s=100.0)
    stage.pass_(4.9)  # 499.9 s
    assert stage.phase() is Phase.COLLECT
    stage.pass_(0.2)
    assert stage.phase() is Phase.MIX


def liar_holds_up(stage: Stage, *, eta_s: float = 1e8) -> float:
    """Seconds for which c keeps a round open by saying that it needs so long."""
    began_s = stage.now_s
    while stage.phase() is Phase.COLLECT:
        stage.not_yet("c", eta_s=eta_s)
        stage.pass_(2.0)
    return stage.now_s - began_s


def test_a_neighbour_that_says_it_needs_years_is_believed_within_bounds_and_once() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    assert liar_holds_up(stage) == 18_000.0  # five times the hour that its word counts for
    for wanted in (2, 3):
        stage.work()
        stage.give("b", wanted)
        assert liar_holds_up(stage) == 60.0  # as if it said nothing
    stage.work()
    stage.give("c", 4)  # it has come: its word counts again
    stage.give("b", 4)
    stage.work()
    stage.give("b", 5)
    assert liar_holds_up(stage, eta_s=100.0) == pytest.approx(500.0, abs=2.0)


def test_a_neighbours_word_counts_for_more_where_rounds_are_long() -> None:
    assert longest(0.0, 3000.0) == 3000.0
    assert longest(0.0, 1e8) == 3600.0
    assert longest(400.0, 1e8) == 8000.0
    assert longest(40.0, 30.0) == 40.0


def test_where_the_bound_is_fixed_a_word_stretches_nothing_and_breaks_nothing() -> None:
    stage = in_round_two(pace=Pace(bound_s=30.0))
    stage.give("b", 1)
    assert liar_holds_up(stage) == 30.0
    assert not any(neighbour.broke_word for neighbour in stage.machine.neighbours.values())


def test_a_neighbour_that_is_slower_than_ever_is_given_up_at_its_own_deadline() -> None:
    stage = in_round_two()
    arrivals = Arrivals()
    for _ in range(50):
        arrivals.add(2.0)
    stage.machine.neighbours[stage.machine.asked[1]].arrivals = arrivals
    stage.give("b", 1)
    stage.not_yet("c")
    stage.pass_(2.9)
    assert stage.phase() is Phase.COLLECT
    stage.pass_(0.2)  # 2 s, no deviation, 1 s of grace
    assert stage.phase() is Phase.MIX


def test_a_lost_neighbour_is_asked_again_and_waited_for_the_grace_only() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    lost = [e for e in stage.pass_(10.0) if isinstance(e, Happened)]
    assert [(e.event, e.peer) for e in lost] == [("lost", "c")]
    assert ("c", 2) in stage.questions(stage.work())
    stage.give("b", 2)
    stage.pass_(0.9)
    assert stage.phase() is Phase.COLLECT
    stage.pass_(0.1)
    assert stage.phase() is Phase.MIX


def test_a_lost_neighbour_that_shows_life_has_returned() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    stage.pass_(10.0)
    stage.work()
    returned = [e for e in stage.not_yet("c") if isinstance(e, Happened)]
    assert [(e.event, e.peer) for e in returned] == [("returned", "c")]
    stage.give("b", 2)
    stage.pass_(5.0)
    assert stage.phase() is Phase.COLLECT


def test_lost_neighbours_do_not_count_for_the_quorum() -> None:
    stage = in_round_two("bcde")
    stage.give("b", 1)
    stage.give("c", 1)
    stage.pass_(10.0)  # d and e are lost
    stage.work()
    stage.give("b", 2)  # one of two that are left
    stage.pass_(10.0)
    assert stage.phase() is Phase.MIX


def test_with_a_quorum_of_all_only_the_bound_ends_the_wait() -> None:
    stage = in_round_two(pace=Pace(quorum=1.0))
    stage.give("b", 1)
    stage.pass_(59.9)
    assert stage.phase() is Phase.COLLECT
    stage.pass_(0.2)
    assert stage.phase() is Phase.MIX


def test_what_is_missing_is_replaced_by_the_last_known_good_at_half_weight() -> None:
    stage = in_round_two()
    stage.round()
    stage.give("b", 2)
    mix = stage.mix(stage.pass_(10.0))
    assert mix is not None
    assert [i.freshness for i in mix.inputs] == [1.0, 0.5]
    record = stage.record(stage.work())
    assert (record.used, record.stale, record.missing) == ({"b": 2}, {"c": 1}, ())


def test_a_substitute_that_is_too_old_is_left_out() -> None:
    stage = in_round_two(pace=Pace(max_staleness=1))
    stage.round()
    records = []
    for wanted in (2, 3):
        stage.give("b", wanted)
        stage.pass_(10.0)
        records.append(stage.record(stage.work()))
    assert [(r.stale, r.missing) for r in records] == [({"c": 1}, ()), ({}, ("c",))]


@pytest.mark.parametrize(("age", "weight"), [(-1, 1.0), (0, 1.0), (1, 0.5), (2, 0.25), (3, 0.125)])
def test_freshness_halves_with_each_half_life(age: int, weight: float) -> None:
    assert freshness(age, 1.0) == weight


def test_a_pull_that_comes_too_late_is_filed_and_used_as_stale() -> None:
    stage = in_round_two()
    stage.offer("c", 1)
    stage.give("b", 1)
    stage.pass_(10.0)
    stage.pull("c", 1)
    stage.judge("c", 1)  # in the middle of MIX
    stage.work()
    stage.give("b", 2)
    stage.pass_(10.0)
    assert stage.record(stage.work()).stale == {"c": 1}


def test_bytes_that_flow_keep_a_neighbour_alive() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    stage.offer("c", 1)
    for _ in range(5):
        stage.pass_(8.0)
        stage.machine.progressed(stage.machine.asked[1], 1000, stage.now_s)
    assert stage.phase() is Phase.COLLECT
    stage.pull("c", 1)
    stage.judge("c", 1)
    assert stage.record(stage.work()).pulled_bytes == 5000


def test_what_fails_admission_is_never_mixed_and_told_with_its_reason() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    stage.offer("c", 1)
    stage.pull("c", 1)
    mix = stage.mix(stage.judge("c", 1, "params/w holds a NaN"))
    assert mix is not None
    assert len(mix.inputs) == 1
    record = stage.record(stage.work())
    assert (record.refused, record.missing) == ({"c": "params/w holds a NaN"}, ("c",))


def test_a_neighbour_that_refuses_us_is_not_waited_for() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    stage.machine.refused(stage.machine.asked[1], "wire version 2, ours 1", stage.now_s)
    assert stage.phase() is Phase.MIX


def test_a_failed_pull_is_asked_for_again() -> None:
    stage = in_round_two("b")
    stage.offer("b", 1)
    effects = stage.machine.pull_failed(stage.machine.asked[0], "digest differs", stage.now_s)
    assert stage.questions(effects) == [("b", 1)]


def test_who_says_goodbye_is_not_waited_for() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    stage.machine.said_bye(stage.machine.asked[1], "stopped", stage.now_s)
    assert stage.phase() is Phase.MIX


def test_who_left_by_the_coordinators_word_is_not_waited_for_and_not_asked_again() -> None:
    stage = in_round_two()
    stage.give("b", 1)
    stage.see({"a": "ready", "b": "ready", "c": "left"}, "abc", counter=2)
    assert stage.phase() is Phase.MIX
    assert stage.questions(stage.work()) == [("b", 2)]


def test_a_lease_that_ran_out_cuts_nobody_off() -> None:
    stage = in_round_two()
    stage.see({"a": "ready", "b": "ready", "c": "lost"}, "abc", counter=2)
    stage.give("b", 1)
    assert stage.phase() is Phase.COLLECT


def test_a_newcomer_becomes_a_neighbour_at_the_next_round() -> None:
    stage = in_round_two()
    stage.see(dict.fromkeys("abcd", "ready"), "abc", counter=2)
    assert list(stage.machine.asked) == ["b", "c"]
    stage.round()
    assert list(stage.machine.asked) == ["b", "c", "d"]


def test_a_peer_two_rounds_behind_jumps_and_records_what_it_skipped() -> None:
    stage = in_round_two()
    stage.give("b", 6)
    stage.give("c", 5)
    record = stage.record(stage.work())
    assert (record.round_no, record.skipped) == (6, (2, 3, 4, 5))
    assert record.stale == {}
    assert stage.machine.round_no == 7


def test_one_round_behind_is_no_reason_to_jump() -> None:
    stage = in_round_two()
    stage.give("b", 2)
    stage.give("c", 2)
    assert stage.record(stage.work()).skipped == ()


def test_a_late_joiner_starts_from_its_neighbours_at_their_round() -> None:
    stage = Stage()
    stage.see(dict.fromkeys("abc", "ready"), "bc")
    assert stage.questions(stage.said) == [("b", 1), ("c", 1)]
    stage.give("b", 7)
    mix = stage.mix(stage.give("c", 8))
    assert mix is not None
    assert mix.round_no == 8
    assert len(mix.inputs) == 2


def test_a_collecting_machine_always_has_a_time_to_wake() -> None:
    stage = Stage()
    stage.found()
    assert stage.wake_at(stage.work()) == stage.now_s + 10.0
    stage.pass_(7.0)
    assert stage.wake_at(stage.not_yet("b")) == stage.now_s + 3.0  # c says nothing
    assert stage.wake_at(stage.give("b", 1)) == stage.now_s + 3.0


@pytest.mark.parametrize("option", ["quorum", "silence_s", "half_life"])
def test_a_pace_out_of_bounds_is_refused(option: str) -> None:
    with pytest.raises(Exception, match=option):
        Pace(**{option: -1.0})  # type: ignore[arg-type]

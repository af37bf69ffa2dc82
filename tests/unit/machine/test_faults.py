"""What a round machine does under a plan of faults: nothing waits for what will never come."""

import tomllib

from peer.effects import Happened
from peer.faults.plan import FaultPlan
from peer.faults.reading import read_faults
from peer.machine import Phase
from peer.pace import Pace
from protocol.ids import PeerId
from tests.unit.machine.stage import Stage

ALL = Pace(quorum=1.0)


def stage(text: str, others: str = "bc", *, rounds: int = 8, pace: Pace = ALL) -> Stage:
    plan = FaultPlan(read_faults(tomllib.loads(text)["fault"]))
    made = Stage(others, rounds=rounds, pace=pace, plan=plan)
    made.found()
    made.up()
    return made


def random(peer: str, first: int, rounds: int) -> str:
    return (
        f'[[fault]]\nkind = "random"\nrate = 1.0\npeer = "{peer}"\n'
        f"at_round = {first}\nfor_rounds = {rounds}\n"
    )


def cut_off(first: int, end: int) -> str:
    return (
        f'[[fault]]\nkind = "partition"\nat_round = {first}\nuntil_round = {end}\n'
        'groups = [["a", "b"], ["c"]]\n'
    )


def test_an_exchange_across_a_partition_fails_at_once_and_is_not_asked() -> None:
    made = stage(cut_off(3, 5))
    made.work()
    made.round()  # 2
    began = len(made.said)
    assert made.machine.round_no == 3
    assert made.machine.missing() == ("b",)
    made.give("b", 2)
    assert made.phase() is Phase.MIX
    record = made.record(made.work())
    assert "c" not in {name for name, _ in made.questions(made.said[began:])[:1]}
    assert record.used == {"b": 2}
    assert record.stale == {"c": 1}  # last-known-good, by the peer's own rules
    assert record.cut == {"c": "partition in round 3"}
    assert record.degraded


def test_after_the_heal_it_is_asked_again() -> None:
    made = stage(cut_off(3, 4))
    made.work()
    made.round()
    made.round()
    assert made.machine.round_no == 4
    record = made.round()
    assert record.used == {"b": 3, "c": 3}
    assert not record.cut


def test_cut_off_from_all_it_plays_a_local_round_without_waiting() -> None:
    made = stage(cut_off(2, 9).replace('["a", "b"], ["c"]', '["a"], ["b", "c"]'))
    for _ in range(8):
        record = made.record(made.work())
        assert record.waited_s == 0.0
        assert (record.used, record.stale) == ({}, {})
    assert made.phase() is Phase.DRAIN


def test_who_cannot_be_heard_is_not_part_of_the_quorum() -> None:
    made = stage(cut_off(3, 9), "bcd", pace=Pace(quorum=0.5))  # d is cut off, as c is
    made.work()
    made.round()
    made.pass_(5.0)  # past what b's history lets expect, but two who cannot come are no half
    assert made.phase() is Phase.COLLECT
    made.give("b", 2)
    record = made.record(made.work())
    assert record.used == {"b": 2}
    assert set(record.cut) == {"c", "d"}


def test_an_absent_peer_sits_its_rounds_out_and_says_so() -> None:
    made = stage(random("a", 2, 3))
    made.work()
    assert made.machine.round_no == 5
    assert [e for e in made.said if isinstance(e, Happened)][-1] == Happened(
        "absent", None, "rounds 2, 3, 4"
    )
    record = made.round()
    assert record.used == {"b": 4, "c": 4}
    assert record.skipped == ()


def test_who_was_away_waits_as_much_longer_as_the_others_have_rounds_to_play() -> None:
    made = stage(random("a", 2, 3), pace=Pace(quorum=1.0, bound_s=10.0))
    made.work()
    made.pass_(39.9)
    assert made.phase() is Phase.COLLECT
    made.pass_(0.1)  # 10 s for its own round, and for each of the three that it sat out
    assert made.phase() is Phase.MIX


def test_an_absent_neighbours_round_is_not_waited_for() -> None:
    made = stage(random("c", 2, 1))
    made.work()
    made.round()  # 2, for which c has given its round 1
    assert made.machine.missing() == ("b",)
    record = made.round()
    assert (record.used, record.stale) == ({"b": 2}, {"c": 1})
    assert record.cut == {"c": "absent from round 2"}
    assert made.round().used == {"b": 3, "c": 3}


def test_absent_to_the_end_it_serves_the_others_and_goes() -> None:
    made = stage(random("a", 6, 9))
    made.work()
    for _ in range(4):
        made.round()
    assert made.phase() is Phase.DRAIN
    assert made.farewells(made.said) == ["b", "c"]


LEAVE = '[[fault]]\nkind = "leave"\nat_round = 4\npeer = "{}"\n'
JOIN = '[[fault]]\nkind = "join"\nat_round = 4\npeer = "{}"\n'


def test_who_leaves_plays_its_last_round_and_goes_when_nobody_needs_it() -> None:
    made = stage(LEAVE.format("a"))
    made.work()
    made.round()
    made.round()
    assert made.phase() is Phase.DRAIN
    assert made.machine.round_no == 3
    for name in "bc":
        made.machine.knows_done(PeerId(name), made.now_s)
    made.machine.said_done(PeerId("b"), made.now_s)
    ended = made.ended(made.machine.said_done(PeerId("c"), made.now_s))
    assert ended == "left before round 4, as the faults say"


def test_who_has_left_is_told_that_nothing_more_is_needed_of_it_and_is_no_neighbour() -> None:
    made = stage(LEAVE.format("c"))
    made.work()
    made.round()
    assert made.farewells(made.said) == []
    made.round()
    assert made.machine.round_no == 4
    assert made.farewells(made.said) == ["c"]
    assert list(made.machine.asked) == ["b"]
    record = made.round()
    assert (record.used, record.missing, record.cut) == ({"b": 3}, (), {})


def test_the_view_says_early_that_it_has_left_and_the_roster_follows_the_plan() -> None:
    made = stage(LEAVE.format("c"))
    made.work()
    made.see({"a": "ready", "b": "ready", "c": "left"}, "abc", counter=2)
    made.give("b", 1)
    made.work()
    assert made.machine.round_no == 3
    assert list(made.machine.asked) == ["b", "c"]
    made.give("b", 2)
    made.work()
    assert list(made.machine.asked) == ["b"]


def test_who_joins_begins_with_its_round_from_the_others_results() -> None:
    made = stage(JOIN.format("a"))
    assert made.machine.round_no == 4
    assert made.machine.missing() == ("b", "c")
    record = made.round()
    assert record.used == {"b": 3, "c": 3}


def test_who_will_join_is_no_neighbour_before_and_has_no_result_in_its_first_round() -> None:
    made = stage(JOIN.format("c"))
    made.work()
    assert list(made.machine.asked) == ["b"]
    made.round()
    made.round()
    assert made.machine.round_no == 4
    assert list(made.machine.asked) == ["b"]  # c is there, but has nothing of round 3
    record = made.round()
    assert not record.degraded
    assert list(made.machine.asked) == ["b", "c"]
    assert made.round().used == {"b": 4, "c": 4}

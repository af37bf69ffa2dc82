"""Whole nodes together: membership, links and rounds, with the real directory, on lossy ways.

After every event each node is held to the rule that it never waits for nothing.
"""

from collections.abc import Callable

import pytest

from peer.options.fields import Value
from tests.unit.node.dweller import Dweller
from tests.unit.node.valley import LEASE_S, Valley, ends

NAMES = "abcde"
ROUNDS = 8
FINISHED = (0, "finished")
MAX_STALENESS = 3


def valley(
    *, loss: float = 0.0, seed: int = 0, founders: int = len(NAMES), **options: Value
) -> Valley:
    pinned = {"run__rounds": ROUNDS, "pace__drain_s": 20.0, **options}
    return Valley(founders=founders, loss=loss, seed=seed, **pinned)


def in_round(dweller: Dweller, number: int) -> Callable[[], bool]:
    def reached() -> bool:
        return dweller.node.machine is not None and dweller.node.machine.round_no >= number

    return reached


def others(dweller: Dweller) -> set[str]:
    return set(NAMES) - {dweller.name}


def tells_of_everybody(dweller: Dweller) -> None:
    """Every record says of each neighbour that it was fresh, stale by so much, or missing."""
    for number, record in dweller.records.items():
        if number == 1:
            assert (record.used, record.stale, record.missing) == ({}, {}, ())
            continue
        said = [*record.used, *record.stale, *record.missing]
        assert len(said) == len(set(said))
        assert set(said) <= others(dweller)
        assert all(1 <= age <= MAX_STALENESS for age in record.stale.values())


def test_five_nodes_finish_with_everybody_fresh_in_every_round() -> None:
    world = valley()
    five = world.settle(NAMES)
    assert world.play(60.0)
    assert ends(five) == dict.fromkeys(NAMES, FINISHED)
    for dweller in five:
        assert list(dweller.records) == list(range(1, ROUNDS + 1))
        for number, record in dweller.records.items():
            fresh = dict.fromkeys(sorted(others(dweller)), number - 1)
            assert record.used == (fresh if number > 1 else {})
            assert not record.degraded


def test_the_slowest_is_waited_for_because_it_says_how_far_it_is() -> None:
    world = valley()
    five = [world.add(name, train_s=25.0 if name == "e" else 1.0) for name in NAMES]
    assert world.play(600.0)
    assert ends(five) == dict.fromkeys(NAMES, FINISHED)
    assert not any(record.degraded for d in five for record in d.records.values())


@pytest.mark.parametrize("seed", range(3))
def test_lost_words_cost_time_and_nothing_else(seed: int) -> None:
    world = valley(loss=0.1, seed=seed)
    five = world.settle(NAMES)
    assert world.play(1500.0)
    assert ends(five) == dict.fromkeys(NAMES, FINISHED)
    for dweller in five:
        tells_of_everybody(dweller)
        assert max(dweller.records) == ROUNDS
        skipped = {number for r in dweller.records.values() for number in r.skipped}
        assert skipped | dweller.records.keys() == set(range(1, ROUNDS + 1))


@pytest.mark.parametrize("seed", range(3))
def test_no_result_is_lost_by_lost_words_where_all_are_waited_for(seed: int) -> None:
    world = valley(
        loss=0.1, seed=seed, pace__quorum=1.0, pace__bound_s=1000.0, pace__drain_s=1000.0
    )
    five = world.settle(NAMES)
    assert world.play(1500.0)
    assert ends(five) == dict.fromkeys(NAMES, FINISHED)
    assert not any(record.degraded for d in five for record in d.records.values())


def test_who_is_ready_serves_those_who_are_behind() -> None:
    world = valley(pace__bound_s=2.0)
    five = [world.add(name, train_s=10.0 if name == "e" else 1.0) for name in NAMES]
    assert world.play(100.0)
    assert ends(five) == dict.fromkeys(NAMES, FINISHED)
    slow = five[4]
    assert len(slow.records) < ROUNDS  # it jumped
    assert set(slow.records[ROUNDS].used) == others(slow)


def test_who_dies_in_mid_round_is_missing_and_the_others_finish() -> None:
    world = valley()
    *four, dead = world.settle(NAMES)
    world.play(60.0, until=in_round(dead, 4))
    world.kill(dead)
    assert world.play(120.0)
    assert ends(four) == dict.fromkeys("abcd", FINISHED)
    for dweller in four:
        tells_of_everybody(dweller)
        assert [peer for peer, _ in dweller.heard("lost")] == ["e"]
        assert set(dweller.records[ROUNDS].used) == others(dweller) - {"e"}
        assert dweller.records[ROUNDS].missing == ("e",)
        ages = [age for r in dweller.records.values() for age in r.stale.values()]
        assert ages == [1, 2, 3]
        assert dweller.records[ROUNDS].waited_s < 2.0  # the grace, once it is known to be lost


def test_the_last_of_five_finishes_alone() -> None:
    world = valley()
    last, *dead = world.settle(NAMES)
    world.play(60.0, until=in_round(last, 3))
    for dweller in dead:
        world.kill(dweller)
    assert world.play(120.0)
    assert ends([last]) == {"a": FINISHED}
    assert last.records[ROUNDS].missing == tuple("bcde")


def test_the_death_of_the_coordinator_stops_nobody() -> None:
    world = valley()
    five = world.settle(NAMES)
    world.play(60.0, until=in_round(five[0], 2))
    world.kill_coordinator()
    assert world.play(120.0)
    assert ends(five) == dict.fromkeys(NAMES, FINISHED)
    assert not any(record.degraded for d in five for record in d.records.values())


def test_a_coordinator_that_comes_back_is_told_and_lets_the_reborn_in() -> None:
    world = valley()
    five = [world.add(name, train_s=10.0) for name in NAMES]
    world.play(60.0, until=in_round(five[0], 2))
    world.kill_coordinator()
    world.play(40.0)
    assert [peer for peer, _ in five[0].heard("coordinator-lost")] == [None]
    world.start_coordinator()
    world.play(60.0)
    assert len(five[0].heard("coordinator-back")) == 1
    world.kill(five[4])
    reborn = world.add("e", train_s=10.0)
    assert world.play(300.0)
    assert ends([*five[:4], reborn]) == dict.fromkeys(NAMES, FINISHED)
    assert "e" in five[0].records[ROUNDS].used


def test_a_lobby_outlives_its_coordinator() -> None:
    world = valley()
    early = world.settle("abc")
    world.play(10.0)
    world.kill_coordinator()
    world.play(90.0)
    world.start_coordinator()
    late = world.settle("de")
    assert world.play(200.0)
    assert ends([*early, *late]) == dict.fromkeys(NAMES, FINISHED)
    assert not any(r.degraded for d in (*early, *late) for r in d.records.values())


def test_a_run_whose_peers_have_all_died_begins_anew_with_them() -> None:
    world = valley()
    five = world.settle(NAMES)
    world.play(60.0, until=in_round(five[0], 4))
    for dweller in five:
        world.kill(dweller)
    again = world.settle(NAMES)
    assert world.play(200.0)
    assert ends(again) == dict.fromkeys(NAMES, FINISHED)
    assert all(list(dweller.records) == list(range(1, ROUNDS + 1)) for dweller in again)


def test_who_starts_again_under_its_name_jumps_to_the_others() -> None:
    world = valley()
    *four, dead = world.settle(NAMES, train_s=5.0)
    world.play(60.0, until=in_round(dead, 3))
    world.kill(dead)
    world.play(100.0, until=in_round(four[0], 5))
    reborn = world.add("e", train_s=5.0)
    assert world.play(300.0)
    assert ends([*four, reborn]) == dict.fromkeys(NAMES, FINISHED)
    assert any(len(record.skipped) >= 2 for record in reborn.records.values())
    for dweller in four:
        assert [peer for peer, _ in dweller.heard("returned")] == ["e"]
        assert "e" in dweller.records[ROUNDS].used


def test_who_is_killed_in_mid_pull_is_pulled_from_again_as_soon_as_it_is_back() -> None:
    world = valley(founders=2)
    one, dead = world.settle("ab", train_s=5.0)
    world.play(60.0, until=lambda: (one, "b") in world._pulls)
    world.kill(dead)
    world.play(world.now_s + 1.0)
    reborn = world.add("b", train_s=5.0)
    back_s = world.now_s
    world.play(300.0, until=lambda: any("b" in r.used for r in one.records.values()))
    assert world.now_s - back_s < 20.0
    assert world.play(300.0)
    assert ends([one, reborn]) == {"a": FINISHED, "b": FINISHED}


def test_a_late_joiner_plays_the_others_rounds() -> None:
    world = valley(founders=4)
    four = world.settle("abcd", train_s=5.0)
    world.play(60.0, until=in_round(four[0], 4))
    late = world.add("e", train_s=5.0)
    assert world.play(300.0)
    assert ends([*four, late]) == dict.fromkeys(NAMES, FINISHED)
    assert min(late.records) >= 4
    assert all("e" in dweller.records[ROUNDS].used for dweller in four)


def test_who_is_stopped_has_left_and_is_not_asked_again() -> None:
    world = valley()
    *four, stopped = world.settle(NAMES)
    world.play(60.0, until=in_round(stopped, 4))
    world.stop(stopped)
    assert ends([stopped]) == {"e": (0, "stopped")}
    assert world.play(60.0)
    assert ends(four) == dict.fromkeys("abcd", FINISHED)
    for dweller in four:
        assert [peer for peer, _ in dweller.heard("left")] == ["e"]
        assert dweller.heard("lost") == []
        assert dweller.records[ROUNDS].missing == ()


def test_a_node_whose_trainer_dies_leaves_with_its_last_words() -> None:
    world = valley()
    *four, broken = world.settle(NAMES)
    world.play(60.0, until=in_round(broken, 4))
    world.later(broken, 0.0, lambda node, now_s: node.trainer_ended("killed by SIGKILL", now_s))
    assert world.play(60.0)
    assert ends([broken]) == {"e": (1, "the trainer process ended: killed by SIGKILL")}
    assert ends(four) == dict.fromkeys("abcd", FINISHED)
    assert four[0].heard("left") == [("e", "the trainer process ended: killed by SIGKILL")]


def test_a_reason_of_several_lines_is_one_line_to_the_others() -> None:
    world = valley(founders=2)
    other, broken = world.add("a"), world.add("b")
    world.play(60.0, until=in_round(broken, 2))
    world.later(broken, 0.0, lambda node, now_s: node.fail("no room\n  on disk", 2, now_s))
    assert world.play(60.0)
    assert ends([other, broken]) == {"a": FINISHED, "b": (2, "no room\n  on disk")}
    assert other.heard("left") == [("b", "no room on disk")]


def test_two_models_are_trained_alone_when_the_run_is_over() -> None:
    world = valley(founders=2)
    one, two = world.add("a", alone=True), world.add("b")
    assert world.play(60.0)
    assert ends([one, two]) == {"a": FINISHED, "b": FINISHED}
    assert (one.compared, two.compared) == (["sgd", "same"], [])


def test_an_option_that_is_not_the_runs_is_refused_by_its_line() -> None:
    world = valley(founders=2)
    world.add("a")
    odd = world.add("b", run__rounds=9)
    world.play(5.0)
    assert ends([odd]) == {"b": (2, "run.rounds: you asked for 9, the run has 8")}


def test_a_node_without_a_coordinator_gives_up_after_a_minute() -> None:
    world = valley()
    world.directory = None
    node = world.add("a")
    assert world.play(61.0)
    assert node.over is not None
    assert node.over.code == 2
    assert node.over.reason.startswith("no coordinator at the coordinator: tried for 60 s; ")


@pytest.mark.parametrize("seed", range(3))
def test_lost_words_a_dead_node_and_a_dead_coordinator_stop_nobody_else(seed: int) -> None:
    world = valley(loss=0.05, seed=seed)
    *four, dead = world.settle(NAMES)
    world.play(600.0, until=in_round(four[seed % 4], 3))
    world.kill(dead)
    world.kill_coordinator()
    assert world.play(1500.0)
    assert ends(four) == dict.fromkeys("abcd", FINISHED)
    for dweller in four:
        tells_of_everybody(dweller)
        assert dweller.records[ROUNDS].missing == ("e",)


def test_a_busy_trainer_is_never_taken_for_dead() -> None:
    valley = Valley(founders=2, run__rounds=2, pace__drain_s=600.0, pace__quorum=1.0)
    a, b = valley.add("a"), valley.add("b", train_s=5.0 * LEASE_S)
    seen: set[str] = set()

    def nobody_is_lost() -> bool:
        assert valley.directory is not None
        seen.update(m.state for m in valley.directory.view.members)
        return "lost" in seen

    assert valley.play(4000.0, until=nobody_is_lost)
    assert seen - {"left"} == {"joining", "ready"}
    assert b.heard("coordinator-lost") == []
    assert ends([a, b]) == dict.fromkeys("ab", (0, "finished"))

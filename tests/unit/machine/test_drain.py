"""How a peer ends: it serves those who are behind, but not for ever."""

from peer.machine import Phase
from peer.pace import Pace
from protocol.ids import PeerId
from tests.unit.machine.stage import Stage


def drained(*, pace: Pace | None = None) -> Stage:
    stage = Stage(rounds=1, pace=pace)
    stage.found()
    stage.up()
    stage.work()
    assert stage.phase() is Phase.DRAIN
    return stage


def done(stage: Stage, name: str) -> str | None:
    stage.machine.knows_done(PeerId(name), stage.now_s)
    return stage.ended(stage.machine.said_done(PeerId(name), stage.now_s))


def test_every_neighbour_is_told_that_nothing_more_is_needed() -> None:
    assert Stage.farewells(drained().said) == ["b", "c"]


def test_a_peer_serves_until_all_neighbours_are_done() -> None:
    stage = drained()
    assert done(stage, "b") is None
    assert done(stage, "c") == "finished"


def test_a_connected_neighbour_is_served_for_as_long_as_the_drain_lasts() -> None:
    stage = drained(pace=Pace(drain_s=30.0))
    done(stage, "b")
    assert stage.ended(stage.pass_(29.9)) is None
    assert stage.ended(stage.pass_(0.1)) == "finished"


def test_a_neighbour_whose_link_is_down_is_waited_for_only_while_it_may_come_back() -> None:
    stage = drained()
    done(stage, "b")
    stage.machine.link_down(PeerId("c"), "connection lost", stage.now_s)
    assert stage.ended(stage.pass_(9.9)) is None
    assert stage.ended(stage.pass_(0.1)) == "finished"


def test_a_neighbour_that_said_goodbye_is_not_waited_for() -> None:
    stage = drained()
    done(stage, "b")
    assert stage.ended(stage.machine.said_bye(PeerId("c"), "stopped", stage.now_s)) == "finished"


def test_done_that_came_before_the_end_counts() -> None:
    stage = Stage(rounds=2)
    stage.found()
    stage.up()
    stage.work()
    for name in "bc":
        stage.machine.said_done(PeerId(name), stage.now_s)
    stage.round()
    assert stage.phase() is Phase.DRAIN
    stage.machine.knows_done(PeerId("b"), stage.now_s)
    assert stage.ended(stage.machine.knows_done(PeerId("c"), stage.now_s)) == "finished"


def test_a_person_can_stop_it_at_any_moment_once() -> None:
    stage = Stage()
    stage.found()
    assert stage.ended(stage.machine.stop("interrupted")) == "interrupted"
    assert stage.machine.stop("again") == ()


def test_nothing_is_pulled_any_more_in_the_drain() -> None:
    stage = drained()
    assert stage.fetches(stage.offer("b", 1)) == []

"""pace.mode = async: a round takes the newest that has come, and waits for nobody."""

import pytest

from peer.effects import Happened
from peer.machine import Phase
from peer.pace import Pace
from peer.roles import Exchange
from peer.settings import Settings, complete
from protocol.errors import ConfigError
from tests.unit.machine.stage import Stage

ASYNC = Pace(mode="async")


def begun(others: str = "bc", *, pace: Pace = ASYNC, rounds: int = 10) -> Stage:
    stage = Stage(others, pace=pace, rounds=rounds)
    stage.found()
    stage.up()
    return stage


def test_no_round_waits_though_nothing_ever_comes() -> None:
    stage = begun(rounds=5)
    for number in range(1, 6):
        assert stage.phase() is Phase.MIX
        record = stage.record(stage.work(took_s=1.0))
        assert (record.round_no, record.waited_s, record.used) == (number, 0.0, {})
    assert stage.phase() is Phase.DRAIN


def test_what_comes_while_it_trains_is_mixed_in_the_next_round() -> None:
    stage = begun()
    stage.work()
    assert stage.questions(stage.said) == [("b", 1), ("c", 1)]
    stage.give("b", 1)  # round 2 is trained meanwhile
    record = stage.record(stage.work())
    assert record.used == {}
    record = stage.record(stage.work())  # 3
    assert (record.used, record.stale, record.missing) == ({}, {"b": 1}, ("c",))


def test_it_asks_for_whatever_is_newer_than_what_it_holds() -> None:
    stage = begun()
    stage.work()
    stage.give("b", 7)  # a quick neighbour is far ahead
    said = stage.work()
    assert stage.questions(said) == [("b", 8), ("c", 1)]
    record = stage.record(stage.work())
    assert (record.round_no, record.used, record.skipped) == (3, {"b": 7}, ())


def test_what_is_too_old_is_left_out() -> None:
    stage = begun(pace=Pace(mode="async", max_staleness=2))
    stage.work()
    stage.give("b", 1)
    stage.work()
    ages = [stage.record(stage.work()).stale.get("b") for _ in range(3)]  # type: ignore[call-overload]
    assert ages == [1, 2, None]


def test_a_silent_neighbour_is_told_as_lost_after_its_silence_not_at_once() -> None:
    stage = begun("b")
    for _ in range(6):
        stage.work(took_s=3.0)
        lost = [e for e in stage.said if isinstance(e, Happened) and e.event == "lost"]
        # asked from 103 s on; its last silence counts from when it connected, at 100 s
        assert bool(lost) == (stage.now_s >= 113.0), stage.now_s


def test_a_late_joiner_waits_for_its_first_results_and_begins_where_the_others_are() -> None:
    stage = Stage("bc", pace=ASYNC)
    stage.see({"a": "ready", "b": "ready", "c": "ready"}, "bc")
    stage.up()
    assert stage.phase() is Phase.COLLECT
    stage.give("b", 6)
    stage.give("c", 6)
    assert stage.phase() is Phase.MIX
    assert stage.machine.round_no == 7
    stage.work()
    assert stage.machine.round_no == 8
    assert stage.phase() is Phase.MIX


def test_a_relay_waits_as_ever() -> None:
    stage = Stage("bc", pace=ASYNC, exchange=Exchange.UPDATES)
    stage.found()
    assert stage.phase() is Phase.COLLECT


@pytest.mark.parametrize("method", ["fedavg", "craft", "scaffold"])
def test_one_common_model_cannot_be_async(method: str) -> None:
    with pytest.raises(ConfigError, match=r"pace\.mode = async does not fit mixer"):
        complete({"method": method, "pace.mode": "async"})
    assert Settings.read(complete({"method": "gossip", "pace.mode": "async"})).pace.mode == "async"

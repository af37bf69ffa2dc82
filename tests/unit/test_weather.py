"""Tables of faults as one peer's weather: on which ways, in which rounds, at which instants."""

import math
from typing import Any

from peer.faults.reading import read_faults
from peer.faults.weather import PeerWeather
from protocol.ids import PeerId
from protocol.transport.ways import CALM, Way

ME, B, C = PeerId("a"), PeerId("b"), PeerId("c")
NAMES = {b"key of b": B, b"key of c": C}


def weather(*tables: dict[str, Any], began_s: float | None = 100.0) -> PeerWeather:
    made = PeerWeather(read_faults(list(tables)), me=ME, began_s=began_s)
    made.members(NAMES)
    return made


def test_seconds_count_from_the_beginning_of_round_one() -> None:
    cut = {"kind": "partition", "groups": [["a"], ["b", "c"]], "at_s": 5.0, "until_s": 8.0}
    told = weather(cut, began_s=None)
    assert told.ways(b"key of b", 1000.0) == (CALM, CALM)
    told.plays(0, 50.0)  # the lobby
    told.plays(1, 60.0)
    told.plays(2, 62.0)
    cuts = [told.ways(b"key of b", at_s)[0].is_cut for at_s in (64.9, 65.0, 67.9, 68.0)]
    assert cuts == [False, True, True, False]


def test_who_goes_on_is_told_when_an_earlier_process_began() -> None:
    cut = {"kind": "partition", "groups": [["a"], ["b", "c"]], "at_s": 5.0, "until_s": 8.0}
    told = weather(cut, began_s=None)
    told.began(40.0)
    told.plays(7, 46.0)
    assert told.ways(b"key of b", 46.0)[0].is_cut
    by_launcher = weather(cut, began_s=30.0)  # its first round was not the run's
    by_launcher.began(40.0)
    assert not by_launcher.ways(b"key of b", 46.0)[0].is_cut


def test_a_heal_ends_a_partition_in_seconds() -> None:
    cut = {"kind": "partition", "groups": [["a"], ["b"]], "at_s": 1.0}
    told = weather(cut, {"kind": "heal", "at_s": 3.0})
    assert told.ways(b"key of b", 102.0)[0].is_cut
    assert not told.ways(b"key of b", 103.0)[0].is_cut


def test_a_one_way_link_acts_on_its_own_direction() -> None:
    told = weather(
        {"kind": "delay", "seconds": 2.0, "links": [["b", "a"]], "one_way": True, "at_s": 0.0}
    )
    assert told.ways(b"key of b", 100.0) == (CALM, Way(delay_s=2.0))
    assert told.ways(b"key of c", 100.0) == (CALM, CALM)


def test_faults_on_one_way_add_up() -> None:
    told = weather(
        {"kind": "delay", "seconds": 2.0, "at_s": 0.0},
        {"kind": "delay", "seconds": 1.0, "peers": ["b"], "at_s": 0.0},
        {"kind": "jitter", "seconds": 0.5, "at_s": 0.0},
        {"kind": "bandwidth", "mbit": 8.0, "at_s": 0.0},
        {"kind": "bandwidth", "mbit": 2.0, "at_s": 0.0},
        {"kind": "loss", "rate": 0.5, "at_s": 0.0},
        {"kind": "loss", "rate": 0.5, "at_s": 0.0},
        {"kind": "corrupt", "rate": 0.25, "at_s": 0.0},
    )
    way = Way(loss=0.75, corrupt=0.25, delay_s=3.0, jitter_s=0.5, mbit=2.0)
    assert told.ways(b"key of b", 100.0) == (way, way)


def test_in_rounds_a_fault_holds_while_they_are_played() -> None:
    told = weather({"kind": "corrupt", "rate": 0.5, "at_round": 2, "until_round": 3})
    rates = []
    for round_no in (1, 2, 3):
        told.plays(round_no, 100.0)
        rates.append(told.ways(b"key of c", 100.0)[1].corrupt)
    assert rates == [0.0, 0.5, 0.0]


def test_what_the_plan_decides_is_no_weather() -> None:
    told = weather(
        {"kind": "partition", "groups": [["a"], ["b"]], "at_round": 1},
        {"kind": "loss", "rate": 1.0, "at_round": 1},
        {"kind": "kill", "peers": ["a"], "at_round": 1},
    )
    told.plays(1, 100.0)
    assert not told
    assert told.ways(b"key of b", 100.0) == (CALM, CALM)


def test_nobody_but_members_stands_in_the_weather() -> None:
    told = weather({"kind": "loss", "rate": 1.0, "at_s": 0.0})
    assert told
    assert told.ways(b"key of the coordinator", 100.0) == (CALM, CALM)


def test_slow_is_a_matter_of_the_trainer_it_befalls() -> None:
    told = weather(
        {"kind": "slow", "factor": 3.0, "peers": ["a"], "at_s": 0.0, "until_s": 1.0},
        {"kind": "slow", "factor": 2.0, "peers": ["a", "b"], "at_round": 2},
        {"kind": "slow", "factor": 9.0, "peers": ["c"], "at_round": 1},
    )
    told.plays(1, 100.0)
    assert told.slowness(100.0) == 3.0
    told.plays(2, 100.5)
    assert math.isclose(told.slowness(100.5), 6.0)
    assert told.slowness(101.0) == 2.0

"""Whom the faults of a launch befall, and when: by the clock, or as rounds are heard of."""

from typing import Any

import pytest

from peer.faults.reading import read_faults
from peer.launch.board import COORDINATOR
from peer.launch.script import Do, Script

PEERS = ("a", "b", "c")


def script(*tables: dict[str, Any]) -> Script:
    return Script(read_faults(list(tables)), relay="hub")


def due(
    script: Script, *, since_s: float = 0.0, running: str = "abc", **rounds: int
) -> list[tuple[Do, str]]:
    reached = dict.fromkeys(PEERS, 0) | rounds
    return [(cue.do, cue.name) for cue in script.due(reached, set(running), since_s)]


def test_a_kill_comes_with_the_peers_own_round_and_the_restart_with_that_of_the_others() -> None:
    killed = script({"kind": "kill", "peers": ["a"], "at_round": 3, "until_round": 5})
    assert due(killed, a=2, b=3) == []
    assert due(killed, a=3, b=4) == [(Do.KILL, "a")]
    assert due(killed, a=3, b=4, running="bc") == []
    assert due(killed, a=3, b=5, running="bc") == [(Do.START, "a")]
    assert due(killed, a=9, b=9) == []  # each thing once


def test_who_is_frozen_goes_on_when_the_others_are_far_enough() -> None:
    frozen = script({"kind": "freeze", "peers": ["a"], "at_round": 2, "for_rounds": 2})
    assert due(frozen, a=2, b=2) == [(Do.FREEZE, "a")]
    assert due(frozen, a=2, b=3) == []
    assert due(frozen, a=2, b=4) == [(Do.THAW, "a")]


def test_an_end_does_not_come_before_its_beginning() -> None:
    late = script({"kind": "kill", "peers": ["a"], "at_round": 3, "until_round": 4})
    assert due(late, b=7) == []
    assert due(late, a=3, b=7) == [(Do.KILL, "a")]  # its own round holds for it while it runs
    assert due(late, a=3, b=7, running="bc") == [(Do.START, "a")]


def test_seconds_count_from_the_beginning_of_round_one() -> None:
    timed = script({"kind": "disk-full", "peers": ["b"], "at_s": 1.5, "for_s": 2.0})
    assert due(timed, since_s=1.4, b=9) == []
    assert due(timed, since_s=1.5) == [(Do.FILL, "b")]
    assert due(timed, since_s=3.5) == [(Do.FREE, "b")]


@pytest.mark.parametrize(
    ("kind", "whom", "done"),
    [
        ("coordinator-down", COORDINATOR, Do.KILL),
        ("coordinator-up", COORDINATOR, Do.START),
        ("relay-down", "hub", Do.KILL),
        ("relay-up", "hub", Do.START),
    ],
)
def test_coordinator_and_relay_go_by_whoever_is_ahead(kind: str, whom: str, done: Do) -> None:
    down = script({"kind": kind, "at_round": 2})
    assert due(down, a=1) == []
    assert due(down, a=1, c=2) == [(done, whom)]


def test_a_restart_kills_and_starts() -> None:
    assert due(script({"kind": "restart", "peers": ["c"], "at_round": 2}), c=2) == [
        (Do.KILL, "c"),
        (Do.START, "c"),
    ]


def test_only_the_clock_moves_who_is_frozen_when_nobody_begins_another_round() -> None:
    by_round = {"kind": "freeze", "peers": ["a"], "at_round": 2, "until_round": 4}
    assert not script(by_round).moves_by_the_clock("a")
    assert not script({"kind": "freeze", "peers": ["a"], "at_s": 2.0}).moves_by_the_clock("a")
    timed = script({"kind": "freeze", "peers": ["a"], "at_s": 2.0, "for_s": 2.0})
    assert timed.moves_by_the_clock("a")
    assert not timed.moves_by_the_clock("b")
    assert due(timed, since_s=2.0) == [(Do.FREEZE, "a")]
    assert timed.moves_by_the_clock("a")
    assert due(timed, since_s=4.0) == [(Do.THAW, "a")]
    assert not timed.moves_by_the_clock("a")


def test_who_joins_at_an_instant_is_not_started_before_it() -> None:
    joined = script({"kind": "join", "peers": ["b"], "at_s": 4.0})
    assert joined.late == {"b"}
    assert joined.starts_by_the_clock()
    assert due(joined, since_s=4.0, running="ac") == [(Do.START, "b")]
    assert not joined.starts_by_the_clock()


def test_what_nodes_do_by_themselves_is_not_the_launchers() -> None:
    tables = (
        {"kind": "join", "peers": ["a"], "at_round": 2},
        {"kind": "leave", "peers": ["b"], "at_round": 2},
        {"kind": "partition", "groups": [["a"], ["b"]], "at_round": 2},
        {"kind": "delay", "seconds": 1.0, "at_s": 0.0},
    )
    own = script(*tables)
    assert own.late == frozenset()
    assert due(own, since_s=99.0, a=9, b=9, c=9) == []


def test_who_leaves_at_an_instant_is_asked_to() -> None:
    assert due(script({"kind": "leave", "peers": ["a"], "at_s": 1.0}), since_s=1.0) == [
        (Do.LEAVE, "a")
    ]

"""What the launcher understands of its processes' lines, and when a run is lost."""

import json

from peer.launch.board import COORDINATOR, Board, Failure
from peer.launch.processes import Ended, Line
from peer.roles import Role


def board(*names: str) -> Board:
    return Board.of(names or ("a", "b"), rounds=4)


def said(name: str, event: str, **fields: object) -> Line:
    return Line(name, json.dumps({"event": event, **fields}), is_error=False)


def told(name: str, text: str) -> Line:
    return Line(name, text, is_error=True)


def begun(*names: str) -> Board:
    started = board(*names)
    started.hear(said("a", "progress", phase="train", round=1, fraction=0.5))
    return started


def test_the_coordinators_first_line_is_the_join_string() -> None:
    heard = board()
    heard.hear(Line(COORDINATOR, "kinfolk:abc", is_error=False))
    heard.hear(Line(COORDINATOR, "something else", is_error=False))
    assert heard.join_string == "kinfolk:abc"


def test_progress_says_what_a_peer_does_and_whom_it_waits_for() -> None:
    heard = board()
    progress = {"phase": "collect", "round": 2, "fraction": 0.25, "waiting_for": ["b"], "eta_s": 3}
    heard.hear(said("a", "progress", **progress))
    a = heard.peers["a"]
    assert (a.phase, a.round_no, a.fraction) == ("collect", 2, 0.25)
    assert (a.waiting_for, a.eta_s) == (("b",), 3.0)


def test_a_round_gives_the_validation_accuracy_as_trained() -> None:
    heard = board()
    scores = {"val_accuracy": 0.75, "test_accuracy": 0.5}
    heard.hear(said("a", "round", round=3, degraded=True, trained=scores, mixed=None))
    heard.hear(said("b", "round", round=1, degraded=False, trained=None))
    assert (heard.peers["a"].accuracy, heard.peers["a"].degraded) == (0.75, 1)
    assert (heard.peers["b"].accuracy, heard.peers["b"].degraded) == (None, 0)


def test_what_is_no_event_changes_nothing() -> None:
    heard = board()
    for text in ("", "hello", "[1]", "[" * 100_000, '{"event": 7}', '{"event": "progress"}'):
        assert heard.hear(Line("a", text, is_error=False)) is None
    assert not heard.begun


def test_a_relay_counts_among_those_that_must_start_and_end() -> None:
    heard = Board.of(["a"], rounds=4, relay="hub")
    assert [(p.name, p.role) for p in heard.peers.values()] == [
        ("a", Role.PEER),
        ("hub", Role.RELAY),
    ]
    heard.hear(said("a", "progress", phase="lobby", round=0))
    heard.end(Ended("hub", 2))
    assert heard.doomed  # the lobby would wait for it for ever


def test_a_lost_neighbour_is_worth_a_line() -> None:
    assert begun().hear(said("a", "lost", peer="b")) == "a: lost b"
    assert begun().hear(said("a", "coordinator-lost", reason="x")) == "a: coordinator lost"


def test_a_run_whose_founder_ends_in_the_lobby_is_doomed() -> None:
    heard = board()
    heard.hear(said("a", "progress", phase="lobby", round=0))
    heard.hear(told("b", "Error: shard b is empty"))
    heard.hear(told("b", "  one sample is enough"))
    remark = heard.end(Ended("b", 2))
    assert heard.doomed
    assert heard.failures == [Failure("b", 2, "shard b is empty - one sample is enough")]
    assert remark == "b has failed: shard b is empty - one sample is enough"
    assert heard.exit_code == 2


def test_a_founder_that_leaves_the_lobby_in_peace_dooms_the_run_as_well() -> None:
    heard = board()
    heard.end(Ended("b", 0))
    assert heard.doomed
    assert heard.exit_code == 1


def test_a_peer_that_dies_in_mid_run_dooms_nobody() -> None:
    heard = begun()
    heard.hear(told("b", "round 1/4  mixed 20.0 %"))
    heard.end(Ended("b", -9))
    assert (heard.doomed, heard.all_ended) == (False, False)
    assert heard.failures == [
        Failure("b", -9, "it was killed by SIGKILL; it said last: round 1/4  mixed 20.0 %")
    ]
    heard.end(Ended("a", 0))
    assert heard.all_ended
    assert heard.exit_code == 1


def test_the_coordinator_is_needed_until_the_first_round_only() -> None:
    early, late = board(), begun()
    early.hear(told(COORDINATOR, "Error: address in use"))
    early.end(Ended(COORDINATOR, 2))
    assert early.doomed
    assert early.exit_code == 2
    late.end(Ended(COORDINATOR, -9))
    assert not late.doomed
    assert late.exit_code == 0


def test_whoever_was_asked_to_end_has_not_failed() -> None:
    heard = begun()
    heard.closing = True
    assert heard.end(Ended("a", 1)) is None
    assert heard.end(Ended(COORDINATOR, -15)) is None
    assert heard.failures == []
    assert heard.peers["a"].phase == "stopped"


def test_a_death_without_words_says_how() -> None:
    heard = begun()
    heard.end(Ended("a", 3))
    heard.end(Ended("b", -300))
    assert [failure.words for failure in heard.failures] == [
        "it ended with code 3",
        "it was killed by signal 300",
    ]


def test_an_end_that_a_fault_brings_is_no_failure() -> None:
    heard = begun()
    heard.excuse("a")
    assert heard.end(Ended("a", -9)) is None
    assert (heard.peers["a"].phase, heard.failures) == ("killed", [])
    heard.started("a")
    assert (heard.peers["a"].phase, heard.peers["a"].code) == ("starting", None)
    heard.end(Ended("a", -9))  # this time nobody asked for it
    assert [failure.name for failure in heard.failures] == ["a"]


def test_who_dies_is_started_again_as_often_as_was_said() -> None:
    heard = Board.of(["a"], rounds=4, restarts=1)
    heard.hear(said("a", "progress", phase="train", round=1, fraction=0.5))
    remark = heard.end(Ended("a", -9))
    assert remark == "a has died and is started again: it was killed by SIGKILL"
    assert (heard.to_start, heard.failures) == (["a"], [])
    heard.started("a")
    heard.end(Ended("a", -9))
    assert [failure.name for failure in heard.failures] == ["a"]


def test_what_an_operator_must_change_is_not_tried_again() -> None:
    heard = Board.of(["a"], rounds=4, restarts=9)
    heard.end(Ended("a", 2))
    assert heard.to_start == []
    assert heard.exit_code == 2

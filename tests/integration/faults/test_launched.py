"""Faults on real processes: whatever befalls them, the run ends, and the records tell it."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peer.ledger import EVENTS, read_events
from tests.experiments import fault, small
from tests.typed import peer

TIMEOUT_S = 280.0  # for what takes half a minute on a quiet machine

pytestmark = pytest.mark.timeout(TIMEOUT_S + 20.0)

PROCESSES = """
[launch]
gpu = "cpu"
threads = 1
"""


class Launched:
    """An experiment that was launched with faults, and what its peers recorded."""

    def __init__(self, folder: Path, *tables: str, peers: int, rounds: int) -> None:
        file = folder / "faults.toml"
        text = small(
            "kinfolk",
            rounds=rounds,
            peers=peers,
            partition="dirichlet:0.5",
            pace="silence_s = 4.0",
            more="".join([PROCESSES, *tables]),
        )
        file.write_text(text)
        self.root = folder / "run"
        self.rounds = rounds
        self.names = [f"shard{number}" for number in range(peers)]
        done = peer("launch", file, "--out", self.root, within_s=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        self.said = (self.root / "launch.log").read_text()
        self.result = json.loads((self.root / "result.json").read_text())

    def records(self, name: str) -> dict[int, Mapping[str, Any]]:
        """By round."""
        found = [e.fields for e in read_events(self.root / name / EVENTS) if e.name == "round"]
        return {int(str(fields["round"])): fields for fields in found}

    def events(self, name: str, kind: str) -> list[Mapping[str, Any]]:
        return [e.fields for e in read_events(self.root / name / EVENTS) if e.name == kind]

    def all_finished(self) -> bool:
        ids = [row["id"] for row in self.result["peers"]]
        last = [max(self.records(name)) for name in self.names]
        return ids == self.names and last == [self.rounds] * len(last)


def slow_shard0(factor: float) -> str:
    """So that the run lasts until all has happened."""
    return fault("slow", at_round=1, peer="shard0", factor=factor)


Launch = Callable[..., Launched]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Run with tables (faults, a relay), and so many `peers` and `rounds`, to its good end."""
    return partial(Launched, tmp_path)


@pytest.mark.long
def test_a_peer_that_is_killed_comes_back_as_itself(launch: Launch) -> None:
    run = launch(fault("restart", at_round=2, peer="shard1"), peers=2, rounds=12)
    assert "shard1 is killed" in run.said
    assert "shard1 is started" in run.said
    assert run.all_finished()
    before, after = run.events("shard1", "started")
    resumed = after["resumed_after"]
    assert resumed >= 1
    assert (before["run"], before["peer"]) == (after["run"], after["peer"])
    assert set(range(1, resumed + 1)) <= run.records("shard1").keys()  # no recorded round is lost


@pytest.mark.long
def test_two_halves_go_on_alone_and_meet_again(launch: Launch) -> None:
    halves = [["shard0", "shard1", "shard2"], ["shard3", "shard4", "shard5"]]
    run = launch(fault("partition", at_s=0, until_s=7, groups=halves), peers=6, rounds=16)
    assert run.all_finished()
    for half, other in (halves, halves[::-1]):
        for name in half:
            rounds = run.records(name)
            assert not set(other) & set(rounds[2]["used"]), "nothing came through"
            late = [set(rounds[number]["used"]) for number in rounds if number > 12]
            assert set(other) <= set().union(*late), "and everything does again"


@pytest.mark.long
def test_who_is_frozen_is_given_up_and_comes_back(launch: Launch) -> None:
    run = launch(fault("freeze", at_s=0, for_s=10, peer="shard2"), peers=3, rounds=20)
    assert run.all_finished()
    for name in ("shard0", "shard1"):
        assert "shard2" in {lost["peer"] for lost in run.events(name, "lost")}
        assert "shard2" in {back["peer"] for back in run.events(name, "returned")}


@pytest.mark.long
def test_a_coordinator_that_dies_costs_no_round(launch: Launch) -> None:
    down = fault("coordinator-down", at_round=2, until_round=5)
    run = launch(down, slow_shard0(30.0), peers=3, rounds=12)
    assert "coordinator is killed" in run.said
    assert "coordinator is started" in run.said
    assert run.all_finished()
    for name in run.names:
        rounds = run.records(name)
        assert list(rounds) == list(range(1, 13))
        assert not any(record["degraded"] for record in rounds.values())


@pytest.mark.long
@pytest.mark.parametrize("when", [{"at_round": 5}, {"at_s": 3}], ids=["in-a-round", "at-a-time"])
def test_who_joins_later_is_everybodys_neighbour_from_then_on(
    launch: Launch, when: Mapping[str, int]
) -> None:
    run = launch(fault("join", **when, peer="shard2"), slow_shard0(60.0), peers=3, rounds=20)
    assert run.all_finished()
    first = min(run.records("shard2"))
    assert first == 5 if "at_round" in when else first > 1
    for name in ("shard0", "shard1"):
        used = [number for number, of in run.records(name).items() if "shard2" in of["used"]]
        assert used
        assert min(used) > first


@pytest.mark.long
def test_changed_frames_are_found_out_and_end_nothing(launch: Launch) -> None:
    run = launch(fault("corrupt", at_s=0, rate=0.05), peers=3, rounds=20)
    assert run.all_finished()
    records = [record for name in run.names for record in run.records(name).values()]
    # A piece fails by its digest, a message by the codec or as nonsense: some of each is certain.
    failed = [event for name in run.names for event in run.events(name, "pull-failed")]
    assert failed or any(record["refused"] for record in records)
    assert any(record["used"] for record in records if record["round"] > 2)


@pytest.mark.long
def test_a_full_disk_is_told_and_ends_nothing(launch: Launch) -> None:
    full = fault("disk-full", at_round=2, until_round=5, peer="shard0")
    run = launch(full, peers=2, rounds=12)
    assert "shard0 finds its disk full" in run.said
    assert run.events("shard0", "journal-behind")
    assert run.all_finished()
    assert list(run.records("shard0")) == list(range(1, 13))  # all of it on record at last


@pytest.mark.long
def test_a_relay_that_dies_is_done_without_until_it_is_back(launch: Launch) -> None:
    down = fault("relay-down", at_round=3, until_round=5)
    run = launch('[relay]\nname = "hub"\n', down, peers=2, rounds=12)
    assert "hub is killed" in run.said
    assert "hub is started" in run.said
    assert run.all_finished()
    assert len(run.events("hub", "started")) == 2


@pytest.mark.long
def test_who_is_killed_for_good_is_missed_and_no_failure(launch: Launch) -> None:
    run = launch(fault("kill", at_round=2, peer="shard1"), peers=2, rounds=4)
    assert (run.result["gone"], run.result["failed"]) == (["shard1"], [])
    assert max(run.records("shard0")) == 4
    assert {"shard1"} == {lost["peer"] for lost in run.events("shard0", "lost")}


@pytest.mark.long
@pytest.mark.parametrize("too", [(), (fault("coordinator-down", at_s=1),)], ids=["peers", "all"])
def test_a_run_of_which_everybody_is_killed_goes_on_where_it_was(
    launch: Launch, too: Sequence[str]
) -> None:
    killed = fault("kill", at_s=4, for_s=2, peers=["shard0", "shard1", "shard2"])
    run = launch(*too, killed, slow_shard0(30.0), peers=3, rounds=16)
    assert run.all_finished()
    starts = [start for name in run.names for start in run.events(name, "started")]
    assert len(starts) == 6
    assert len({start["run"] for start in starts}) == 1
    for name in run.names:
        after = run.events(name, "started")[1]["resumed_after"]
        assert 1 <= after < 16
        assert set(range(1, after + 1)) <= run.records(name).keys()


@pytest.mark.long
def test_who_is_frozen_for_good_is_missed_and_not_waited_for(launch: Launch) -> None:
    run = launch(fault("freeze", at_round=2, until_round=9, peer="shard1"), peers=2, rounds=4)
    assert (run.result["gone"], run.result["failed"]) == (["shard1"], [])
    assert max(run.records("shard0")) == 4

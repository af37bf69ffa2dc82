"""Faults on real processes: whatever befalls them, the run ends, and the records tell it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from peer.ledger import EVENTS, read_events

TIMEOUT_S = 280.0  # for what takes half a minute on a quiet machine

pytestmark = pytest.mark.timeout(TIMEOUT_S + 20.0)

EXPERIMENT = """
[run]
rounds = {rounds}
[method]
name = "kinfolk"
[model]
name = "mlp"
[pace]
silence_s = 4.0
[data]
make = ["optdigits"]
peers = {peers}
partition = "dirichlet:0.5"
samples_per_class = 4
size = 8
[launch]
gpu = "cpu"
threads = 1
"""


class Launched:
    """An experiment that was launched with faults, and what its peers recorded."""

    def __init__(self, folder: Path, faults: str, *, peers: int, rounds: int) -> None:
        file = folder / "faults.toml"
        file.write_text(EXPERIMENT.format(peers=peers, rounds=rounds) + faults)
        self.root = folder / "run"
        self.rounds = rounds
        self.names = [f"shard{number}" for number in range(peers)]
        command = [sys.executable, "-m", "peer", "launch", str(file), "--out", str(self.root)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        self.said = (self.root / "launch.log").read_text()

    def records(self, name: str) -> dict[int, Mapping[str, Any]]:
        """By round."""
        found = [e.fields for e in read_events(self.root / name / EVENTS) if e.name == "round"]
        return {int(str(fields["round"])): fields for fields in found}

    def events(self, name: str, kind: str) -> list[Mapping[str, Any]]:
        return [e.fields for e in read_events(self.root / name / EVENTS) if e.name == kind]

    def all_finished(self) -> bool:
        rows = json.loads((self.root / "result.json").read_text())["peers"]
        last = [max(self.records(name)) for name in self.names]
        return [row["id"] for row in rows] == self.names and last == [self.rounds] * len(last)


@pytest.mark.long
def test_a_peer_that_is_killed_comes_back_as_itself(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[[fault]]\nkind = "restart"\nat_round = 2\npeer = "shard1"\n',
        peers=2,
        rounds=12,
    )
    assert "shard1 is killed" in run.said
    assert "shard1 is started" in run.said
    assert run.all_finished()
    before, after = run.events("shard1", "started")
    resumed = after["resumed_after"]
    assert resumed >= 1
    assert (before["run"], before["peer"]) == (after["run"], after["peer"])
    assert set(range(1, resumed + 1)) <= run.records("shard1").keys()  # no recorded round is lost


@pytest.mark.long
def test_two_halves_go_on_alone_and_meet_again(tmp_path: Path) -> None:
    halves = [["shard0", "shard1", "shard2"], ["shard3", "shard4", "shard5"]]
    run = Launched(
        tmp_path,
        f'[[fault]]\nkind = "partition"\nat_s = 0\nuntil_s = 7\ngroups = {json.dumps(halves)}\n',
        peers=6,
        rounds=16,
    )
    assert run.all_finished()
    for half, other in (halves, halves[::-1]):
        for name in half:
            rounds = run.records(name)
            assert not set(other) & set(rounds[2]["used"]), "nothing came through"
            late = [set(rounds[number]["used"]) for number in rounds if number > 12]
            assert set(other) <= set().union(*late), "and everything does again"


@pytest.mark.long
def test_who_is_frozen_is_given_up_and_comes_back(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[[fault]]\nkind = "freeze"\nat_s = 0\nfor_s = 10\npeer = "shard2"\n',
        peers=3,
        rounds=20,
    )
    assert run.all_finished()
    for name in ("shard0", "shard1"):
        assert "shard2" in {lost["peer"] for lost in run.events(name, "lost")}
        assert "shard2" in {back["peer"] for back in run.events(name, "returned")}


@pytest.mark.long
def test_a_coordinator_that_dies_costs_no_round(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[[fault]]\nkind = "coordinator-down"\nat_round = 2\nuntil_round = 5\n'
        '[[fault]]\nkind = "slow"\nat_round = 1\npeer = "shard0"\nfactor = 30.0\n',
        peers=3,
        rounds=12,
    )
    assert "coordinator is killed" in run.said
    assert "coordinator is started" in run.said
    assert run.all_finished()
    for name in run.names:
        rounds = run.records(name)
        assert list(rounds) == list(range(1, 13))
        assert not any(record["degraded"] for record in rounds.values())


@pytest.mark.long
@pytest.mark.parametrize("when", ["at_round = 5", "at_s = 3"])
def test_who_joins_later_is_everybodys_neighbour_from_then_on(tmp_path: Path, when: str) -> None:
    run = Launched(
        tmp_path,
        f'[[fault]]\nkind = "join"\n{when}\npeer = "shard2"\n'
        '[[fault]]\nkind = "slow"\nat_round = 1\npeer = "shard0"\nfactor = 60.0\n',
        peers=3,
        rounds=20,
    )
    assert run.all_finished()
    first = min(run.records("shard2"))
    assert first == 5 if "round" in when else first > 1
    for name in ("shard0", "shard1"):
        used = [number for number, of in run.records(name).items() if "shard2" in of["used"]]
        assert used
        assert min(used) > first


@pytest.mark.long
def test_changed_frames_are_found_out_and_end_nothing(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[[fault]]\nkind = "corrupt"\nat_s = 0\nrate = 0.05\n',
        peers=3,
        rounds=20,
    )
    assert run.all_finished()
    records = [record for name in run.names for record in run.records(name).values()]
    # A piece fails by its digest, a message by the codec or as nonsense: some of each is certain.
    failed = [event for name in run.names for event in run.events(name, "pull-failed")]
    assert failed or any(record["refused"] for record in records)
    assert any(record["used"] for record in records if record["round"] > 2)


@pytest.mark.long
def test_a_full_disk_is_told_and_ends_nothing(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[[fault]]\nkind = "disk-full"\nat_round = 2\nuntil_round = 5\npeer = "shard0"\n',
        peers=2,
        rounds=12,
    )
    assert "shard0 finds its disk full" in run.said
    assert run.events("shard0", "journal-behind")
    assert run.all_finished()
    assert list(run.records("shard0")) == list(range(1, 13))  # all of it on record at last


@pytest.mark.long
def test_a_relay_that_dies_is_done_without_until_it_is_back(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[relay]\nname = "hub"\n[[fault]]\nkind = "relay-down"\nat_round = 3\nuntil_round = 5\n',
        peers=2,
        rounds=12,
    )
    assert "hub is killed" in run.said
    assert "hub is started" in run.said
    assert run.all_finished()
    assert len(run.events("hub", "started")) == 2


@pytest.mark.long
def test_who_is_killed_for_good_is_missed_and_no_failure(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[[fault]]\nkind = "kill"\nat_round = 2\npeer = "shard1"\n',
        peers=2,
        rounds=4,
    )
    result = json.loads((run.root / "result.json").read_text())
    assert (result["gone"], result["failed"]) == (["shard1"], [])
    assert max(run.records("shard0")) == 4
    assert {"shard1"} == {lost["peer"] for lost in run.events("shard0", "lost")}


@pytest.mark.long
@pytest.mark.parametrize("too", ["", '[[fault]]\nkind = "coordinator-down"\nat_s = 1\n'])
def test_a_run_of_which_everybody_is_killed_goes_on_where_it_was(tmp_path: Path, too: str) -> None:
    run = Launched(
        tmp_path,
        f"{too}"
        '[[fault]]\nkind = "kill"\nat_s = 4\nfor_s = 2\npeers = ["shard0", "shard1", "shard2"]\n'
        '[[fault]]\nkind = "slow"\nat_round = 1\npeer = "shard0"\nfactor = 30.0\n',
        peers=3,
        rounds=16,
    )
    assert run.all_finished()
    starts = [start for name in run.names for start in run.events(name, "started")]
    assert len(starts) == 6
    assert len({start["run"] for start in starts}) == 1
    for name in run.names:
        after = run.events(name, "started")[1]["resumed_after"]
        assert 1 <= after < 16
        assert set(range(1, after + 1)) <= run.records(name).keys()


@pytest.mark.long
def test_who_is_frozen_for_good_is_missed_and_not_waited_for(tmp_path: Path) -> None:
    run = Launched(
        tmp_path,
        '[[fault]]\nkind = "freeze"\nat_round = 2\nuntil_round = 9\npeer = "shard1"\n',
        peers=2,
        rounds=4,
    )
    result = json.loads((run.root / "result.json").read_text())
    assert (result["gone"], result["failed"]) == (["shard1"], [])
    assert max(run.records("shard0")) == 4

"""The main job as people type it: one coordinator, three peers of two users, real digits.

One run, looked at from several sides. One peer has a single sample to train on, one has no sample
of one class: both are peers like any other.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from peer.data.shard import Split, read_stored, save_shard
from peer.ledger import read_events
from peer.summary import read_summary
from tests.integration.peers.village import LOOPBACK, Process, User, village
from tests.unit.training.classroom import write_digits

ROUNDS = 4
PEERS = ("full", "lacking", "single")


@dataclass(frozen=True)
class Run:
    coordinator: Process
    peers: dict[str, Process]
    folders: dict[str, Path]
    codes: dict[str, int]
    typed: str  # what `peer join` printed
    stranger: User


def without_threes(path: Path) -> None:
    card, splits = read_stored(path)
    train = splits["train"]
    kept = train.y != 3
    assert not kept.all()
    save_shard(path, card, {**splits, "train": Split(train.x[kept], train.y[kept])})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with village(tmp_path_factory.mktemp("main-job")) as place:
        write_digits(place.shards / "full.npz", first=0, num=64)
        without_threes(write_digits(place.shards / "lacking.npz", first=200, num=64))
        write_digits(place.shards / "single.npz", first=400, num=1)
        host, stranger = place.user(), place.user()
        coordinator = host.coordinator(
            *LOOPBACK, "--run", "first", founders=3, model="mlp", run__rounds=ROUNDS
        )
        join = stranger.type("peer", "join", coordinator.out.strip())
        assert join.end() == 0, join.err
        peers = {name: host.peer(name) for name in PEERS[:2]}
        peers["single"] = stranger.peer("single")
        codes = {name: process.end() for name, process in peers.items()}
        coordinator.signal(15)
        codes["coordinator"] = coordinator.end()
        folders = {
            name: (stranger if name == "single" else host).cwd / "runs" / "first" / name
            for name in PEERS
        }
        yield Run(coordinator, peers, folders, codes, join.out, stranger)


def test_every_process_ends_with_0(run: Run) -> None:
    said = "\n".join(process.err for process in run.peers.values())
    assert run.codes == {"full": 0, "lacking": 0, "single": 0, "coordinator": 0}, said


def test_every_peer_plays_every_round_with_every_neighbour_fresh(run: Run) -> None:
    for name, process in run.peers.items():
        rounds = process.rounds()
        assert sorted(rounds) == list(range(1, ROUNDS + 1))
        assert rounds[1]["used"] == {}  # nobody has a result yet
        for number in range(2, ROUNDS + 1):
            used = rounds[number]["used"]
            assert sorted(used) == sorted(set(PEERS) - {name})
            assert all(of >= number - 1 for of in used.values())
            assert sorted(rounds[number]["pulled"]) == sorted(set(PEERS) - {name})
            assert rounds[number]["pulled_bytes"] == sum(rounds[number]["pulled"].values()) > 0
        for record in rounds.values():
            assert not record["degraded"]
            assert (record["stale"], record["missing"]) == ({}, [])
            assert (record["refused"], record["skipped"]) == ({}, [])


def test_what_is_shown_in_json_is_what_events_jsonl_holds(run: Run) -> None:
    for name, process in run.peers.items():
        shown = [line for line in process.happenings() if line["event"] != "progress"]
        lines = (run.folders[name] / "events.jsonl").read_text().splitlines()
        assert shown == [json.loads(line) for line in lines]
        events = [event.name for event in read_events(run.folders[name] / "events.jsonl")]
        assert events[0] == "started"
        assert events[-1] == "finished"


def test_every_peer_leaves_its_summary_model_and_influence(run: Run) -> None:
    for name in PEERS:
        summary = read_summary(run.folders[name] / "summary.json")
        assert (summary.id, summary.rounds_finished, summary.rounds_degraded) == (name, ROUNDS, 0)
        assert None not in (summary.own_accuracy, summary.trained_accuracy, summary.twin_accuracy)
        assert sum(summary.served_rounds.values()) == ROUNDS
        assert summary.served in summary.served_rounds
        model = load_file(run.folders[name] / "model.safetensors")
        assert all(np.isfinite(tensor).all() for tensor in model.values())
        with np.load(run.folders[name] / "influence.npz") as influence:
            assert influence["rounds"].tolist() == list(range(1, ROUNDS + 1))
            assert set(influence["peers"].tolist()) >= set(PEERS) - {name}


def test_each_peer_ends_with_a_model_of_its_own(run: Run) -> None:
    models = [load_file(run.folders[name] / "model.safetensors") for name in PEERS]
    key = max(models[0], key=lambda name: models[0][name].size)
    assert not np.array_equal(models[0][key], models[1][key])
    assert not np.array_equal(models[1][key], models[2][key])


def test_a_user_with_another_home_needs_the_join_string_once_and_nothing_else(run: Run) -> None:
    assert run.typed.startswith(f"stored in {run.stranger.home}/join: ")
    stored = run.stranger.home / "join"
    assert stored.read_text() == run.coordinator.out
    assert stored.stat().st_mode & 0o777 == 0o600


def test_no_word_of_the_token_is_shown(run: Run) -> None:
    secret = run.coordinator.out.strip().rpartition(":")[2]
    for process in run.peers.values():
        assert secret not in process.out + process.err


def test_the_coordinator_tells_who_came_and_who_left(run: Run) -> None:
    for name in PEERS:
        assert f"{name} left" in run.coordinator.err
    assert "the run starts: full, lacking, single" in run.coordinator.err

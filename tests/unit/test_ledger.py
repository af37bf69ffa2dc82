"""What a peer writes of its run can be read back, and no disk ends it."""

import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from peer.data.archive import write_archive
from peer.durable import watched
from peer.influence import read_influence, tabulate
from peer.ledger import EVENTS, INFLUENCE, SUMMARY, Ledger, read_events
from peer.record import RoundRecord
from peer.summary import PeerSummary, read_summary, summarise
from peer.work import Score, Weights
from protocol.errors import ConfigError, DataError
from protocol.ids import PeerId

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")
EMPTY = Score(-1.0, -1.0, -1.0, -1.0)


def record(round_no: int, *weights: Weights, test: float = 0.5) -> RoundRecord:
    score = Score(0.25, 1.5, test, 1.0)
    return RoundRecord(
        round_no=round_no,
        used={B: round_no - 1},
        stale={},
        missing=(),
        refused={},
        mixed=EMPTY,
        trained=score,
        own=score,
        weights=weights,
    )


def weights(sender: PeerId, weight: float, loss: float, *classes: float) -> Weights:
    return Weights(sender, weight, loss, classes)


def test_an_event_is_one_line_with_version_and_time(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a", clock_s=lambda: 12.5) as ledger:
        line = ledger.event("lobby", ready=3, founders=4, hosts=("x", "y"), eta_s=float("inf"))
    written = (tmp_path / "a" / EVENTS).read_text()
    assert written == line + "\n"
    assert json.loads(line) == {
        "v": 1,
        "at_s": 12.5,
        "event": "lobby",
        "ready": 3,
        "founders": 4,
        "hosts": ["x", "y"],
        "eta_s": None,
    }


def test_a_round_says_who_was_used_and_scores_of_an_empty_split_are_null(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.round(record(4, weights(A, 0.75, 1.0), weights(B, -1.0, -1.0)))
    (event,) = read_events(tmp_path / EVENTS)
    assert (event.name, event.fields["round"]) == ("round", 4)
    assert event.fields["used"] == {"b": 3}
    assert event.fields["degraded"] is False
    assert event.fields["mixed"] == dict.fromkeys(
        ("val_accuracy", "val_loss", "test_accuracy", "test_loss")
    )
    assert event.fields["client_weight"] == {"a": 0.75}


def test_influence_is_tabulated_with_nan_where_a_peer_was_absent(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.round(record(1, weights(A, 0.25, 1.0, 0.5, 0.5), weights(B, 0.75, 2.0, 0.5, 0.5)))
        ledger.round(record(2, weights(A, 0.5, 3.0, 1.0, 0.0), weights(C, 0.5, 4.0, 0.0, 1.0)))
    influence = read_influence(tmp_path / INFLUENCE)
    nan = np.nan
    assert influence.peers == ("a", "b", "c")
    assert influence.rounds.tolist() == [1, 2]
    np.testing.assert_equal(influence.client_weight, [[0.25, 0.75, nan], [0.5, nan, 0.5]])
    np.testing.assert_equal(influence.client_loss, [[1.0, 2.0, nan], [3.0, nan, 4.0]])
    np.testing.assert_equal(influence.class_weight[1], [[1.0, 0.0], [nan, nan], [0.0, 1.0]])


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_ledger_that_syncs_nothing_has_the_same_influence_at_its_end(
    tmp_path: Path, is_killed: bool
) -> None:
    rounds = [record(n, weights(A, 0.25, 1.0), weights(B, 0.75, 2.0)) for n in (1, 2)]
    steps: list[str] = []
    with watched(lambda what, _path: steps.append(what)):
        ledger = Ledger(tmp_path / "loose", sync=False)
        for one in rounds:
            ledger.round(one)
        assert not (tmp_path / "loose" / INFLUENCE).exists()
        if is_killed:
            ledger.abandon()
        else:
            ledger.summary(summarise(rounds, peer=A, domain="", camp=0, samples=1, alone={}))
            ledger.close()
    assert "sync" not in steps
    with watched(lambda what, _path: steps.append(what)), Ledger(tmp_path / "synced") as ledger:
        for one in rounds:
            ledger.round(one)
        assert (tmp_path / "synced" / INFLUENCE).exists()
    assert steps.count("sync") == len(rounds)
    files = [(tmp_path / name / INFLUENCE).read_bytes() for name in ("loose", "synced")]
    assert files[0] == files[1]


def test_relative_influence_is_weight_times_peers_over_the_last_half(tmp_path: Path) -> None:
    rounds = [
        record(1, weights(A, 0.5, 1.0), weights(B, 0.5, 1.0)),  # of the first half
        record(2, weights(A, 0.25, 1.0), weights(B, 0.5, 1.0), weights(C, 0.25, 1.0)),
        record(3, weights(A, 0.25, 1.0), weights(B, 0.75, 1.0)),
    ]
    table = tabulate(rounds)  # round(0.5 * 3) = 2 rounds
    assert table.relative() == {"a": (3 * 0.25 + 2 * 0.25) / 2, "b": 1.5, "c": 0.75}
    assert table.relative(last=1.0)["a"] == (1.0 + 0.75 + 0.5) / 3
    assert table.helped_most_by("b") == "c"
    assert table.helped_most_by("c") == "b"


def test_a_peer_without_neighbours_was_helped_by_nobody() -> None:
    assert tabulate([record(1, weights(A, 1.0, -1.0))]).helped_most_by("a") is None
    assert tabulate([]).helped_most_by("a") is None


def test_a_summary_holds_the_last_round_and_the_alone_models(tmp_path: Path) -> None:
    records = [
        record(1, weights(A, 0.5, 1.0), weights(B, 0.5, 1.0), test=0.25),
        record(2, weights(A, 0.5, 1.0), weights(B, 0.5, 1.0), test=0.75),
    ]
    alone = {"sgd": Score(0.0, 1.0, 0.125, 1.0)}
    summary = summarise(records, peer="a", domain="mnist", camp=1, samples=40, alone=alone)
    with Ledger(tmp_path) as ledger:
        ledger.summary(summary)
    assert read_summary(tmp_path / SUMMARY) == summary
    assert (summary.rounds_finished, summary.rounds_degraded) == (2, 0)
    assert (summary.own_accuracy, summary.mixed_accuracy) == (0.75, None)
    assert (summary.alone_sgd_accuracy, summary.alone_same_solver_accuracy) == (0.125, None)
    assert (summary.served, summary.helped_most_by) == ("trained", "b")
    assert (summary.served_rounds, summary.twin_accuracy) == ({"trained": 2}, None)


def test_a_summary_out_of_bounds_is_refused() -> None:
    good = summarise([], peer="a", domain="d", camp=0, samples=1, alone={})
    fields = {name: getattr(good, name) for name in PeerSummary.__slots__}
    with pytest.raises(DataError, match=r"own_accuracy is 1\.5, must be in \[0, 1\]"):
        PeerSummary(**{**fields, "own_accuracy": 1.5})
    with pytest.raises(DataError, match="camp is True, must be int"):
        PeerSummary(**{**fields, "camp": True})
    with pytest.raises(DataError, match="served_rounds has 0 for twin, must be >= 1"):
        PeerSummary(**{**fields, "served_rounds": {"twin": 0}})


def test_a_summary_counts_how_often_each_model_was_served() -> None:
    score = Score(0.5, 1.0, 0.5, 1.0)
    records = [
        replace(record(number, weights(A, 1.0, 1.0), test=0.25), served=served, twin=score)
        for number, served in enumerate(["trained", "twin", "twin"], 1)
    ]
    summary = summarise(records, peer="a", domain="d", camp=0, samples=1, alone={})
    assert list(summary.served_rounds.items()) == [("twin", 2), ("trained", 1)]
    assert (summary.served, summary.twin_accuracy) == ("twin", 0.5)


def test_a_torn_last_line_is_left_out_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / EVENTS
    path.write_text('{"v": 1, "at_s": 1, "event": "lobby"}\n{"v": 1, "at_s"')
    assert [event.name for event in read_events(path)] == ["lobby"]
    with Ledger(tmp_path) as ledger:
        ledger.event("started")
    assert [event.name for event in read_events(path)] == ["lobby", "started"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "not a JSON object"),
        ('{"v": 2, "at_s": 1, "event": "x"}', "version 2, this Kinfolk reads 1"),
        ('{"v": 1, "event": "x"}', "not an event"),
        ("[" * 100_000, "not a JSON object"),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_its_number(
    line: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / EVENTS).write_text('{"v": 1, "at_s": 1, "event": "lobby"}\n' + line + "\n")
    with pytest.raises(DataError, match=f"line 2, .*{said}"):
        read_events(tmp_path / EVENTS)


def test_a_full_disk_is_told_once_and_what_waits_is_written_later(tmp_path: Path) -> None:
    told: list[str] = []
    with Ledger(tmp_path, tell=told.append) as ledger:
        ledger.event("lobby", ready=1)
        size = (tmp_path / EVENTS).stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # ten bytes are left
        try:
            ledger.round(record(1, weights(A, 1.0, 1.0)))
            ledger.event("lost", peer="b")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert len(told) == 1
        assert "the run goes on" in told[0]
        ledger.round(record(2, weights(A, 1.0, 1.0)))
    names = [event.name for event in read_events(tmp_path / EVENTS)]
    assert names == ["lobby", "round", "lost", "round"]
    assert read_influence(tmp_path / INFLUENCE).rounds.tolist() == [1, 2]
    assert len(told) == 2


@pytest.mark.skipif(os.name != "posix", reason="needs a path that cannot be a folder")
def test_a_directory_that_cannot_be_made_is_the_operators_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        Ledger(tmp_path / "file" / "a")


def test_an_influence_of_shapes_that_do_not_fit_is_refused(tmp_path: Path) -> None:
    one = np.zeros((1, 2))
    write_archive(
        tmp_path / INFLUENCE,
        {
            "rounds": np.array([1]),
            "peers": np.array(["a"]),
            "client_weight": one,
            "class_weight": np.zeros((1, 2, 0)),
            "client_loss": one,
        },
    )
    with pytest.raises(DataError, match="1 rounds and 1 peers do not fit"):
        read_influence(tmp_path / INFLUENCE)

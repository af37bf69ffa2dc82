"""How a run came through its faults is read back from what its peers have left."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from peer.faults.reading import read_faults
from peer.ledger import Ledger
from peer.record import RoundRecord
from peer.survival import Survival, survival_of, write_survival
from peer.survival_picture import draw_survival
from peer.work import Score
from protocol.errors import DataError
from protocol.ids import PeerId

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")
PARTITION = (
    '[[fault]]\nkind = "partition"\nat_round = 2\nuntil_round = 4\ngroups = [["a"], ["b"]]\n'
    '[[fault]]\nkind = "random"\nrate = 1.0\npeer = "b"\nat_round = 3\nfor_rounds = 1\n'
)
SECONDS = '[[fault]]\nkind = "kill"\nat_s = 1.5\nuntil_s = 3.5\npeer = "b"\n'


def record(number: int, accuracy: float, **more: Any) -> RoundRecord:
    given: dict[str, Any] = {"used": {}, "stale": {}, "missing": (), "refused": {}, **more}
    score = Score(-1.0, 0.0, accuracy, 1.0)
    return RoundRecord(round_no=number, own=score, round_s=1.0, waited_s=0.25, **given)


def clock(start_s: float) -> Callable[[], float]:
    """Every second line is a second later: a round ends at each whole second."""
    at = [start_s]

    def now_s() -> float:
        at[0] += 1.0
        return at[0]

    return now_s


def write(folder: Path, name: str, records: Mapping[int, RoundRecord], start_s: float) -> None:
    with Ledger(folder / name, clock_s=clock(start_s)) as ledger:
        ledger.event("started", peer=name, role="peer")
        for rec in records.values():
            ledger.round(rec)
        ledger.event("finished", reason="finished")


def run(folder: Path, text: str) -> Survival:
    write(
        folder,
        "a",
        {
            1: record(1, 0.1),
            2: record(2, 0.2, stale={B: 1}, cut={B: "partition in round 2"}, pulled={C: 10}),
            3: record(3, 0.4, missing=(B,), refused={C: "a NaN"}, cut={B: "partition in round 3"}),
            4: record(4, 0.8, used={C: 3}, missing=(B,), pulled={C: 5}),
        },
        100.0,
    )
    write(folder, "b", {1: record(1, 0.3), 2: record(2, 0.4), 4: record(4, 0.6)}, 100.0)
    faults = read_faults(tomllib.loads(text)["fault"])
    return survival_of(folder, faults, run="x", seed=0, rounds=4)


def test_each_peer_has_its_row(tmp_path: Path) -> None:
    a, b = run(tmp_path, PARTITION).peers
    assert (a.rounds_finished, a.rounds_degraded, a.starts, a.finished) == (4, 3, 1, "finished")
    assert (a.stale, a.nothing, a.pulled_bytes) == ({1: 1}, 2, 15)
    assert (a.waited_s, a.lost_s, a.played_s) == (1.0, 0.75, 4.0)
    assert (b.sat_out, b.skipped, a.sat_out) == ((3,), (), ())


def test_who_was_missing_has_its_reason(tmp_path: Path) -> None:
    a, _ = run(tmp_path, PARTITION).peers
    missed = [(m.round_no, m.neighbour, m.why, m.age) for p in a.rounds for m in p.missed]
    assert missed == [
        (2, "b", "partition in round 2", 1),
        (3, "b", "partition in round 3", 0),
        (4, "b", "not in time", 0),
    ]


def test_accuracy_is_told_before_during_and_after_a_fault_in_rounds(tmp_path: Path) -> None:
    partition, absence = run(tmp_path, PARTITION).windows
    assert (partition.begin, partition.end, partition.unit) == (2.0, 4.0, "rounds")
    # a: 0.1 | 0.2 0.4 | 0.8; b: 0.3 | 0.4 | 0.6
    assert partition.before == pytest.approx((0.1 + 0.3) / 2)
    assert partition.during == pytest.approx((0.3 + 0.4) / 2)
    assert partition.after == pytest.approx((0.8 + 0.6) / 2)
    assert absence.what == "random 100 % b"


def test_a_fault_in_seconds_counts_from_the_beginning_of_round_1(tmp_path: Path) -> None:
    survival = run(tmp_path, SECONDS)
    assert survival.in_seconds
    (kill,) = survival.windows
    assert [p.begin_s for p in survival.peers[0].rounds] == [0.0, 1.0, 2.0, 3.0]
    # rounds that lie whole before 1.5 s: 1; none begins after 3.5 s
    assert kill.before == pytest.approx((0.1 + 0.3) / 2)
    assert kill.after is None


def test_it_is_written_and_drawn(tmp_path: Path) -> None:
    for text in (PARTITION, SECONDS):
        folder = tmp_path / str(len(text))
        survival = run(folder, text)
        write_survival(folder / "survival.json", survival)
        read = json.loads((folder / "survival.json").read_text())
        assert read["peers"][0]["stale"] == {"1": 1}
        assert len(read["windows"]) == len(survival.windows)
        draw_survival(folder / "survival.png", survival)
        first = (folder / "survival.png").read_bytes()
        assert first.startswith(b"\x89PNG\r\n")
        draw_survival(folder / "survival.png", survival)
        assert (folder / "survival.png").read_bytes() == first


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run directory"):
        survival_of(tmp_path, (), run="x", seed=0, rounds=1)

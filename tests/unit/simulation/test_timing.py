"""[timing]: virtual durations, of all peers or of one, given or measured."""

from pathlib import Path

import pytest

from peer.data import shard_facts
from peer.roles import Role
from peer.settings import complete
from peer.simulation.calibrate import step_seconds
from peer.simulation.timing import Timing, TimingTable, read_timing
from peer.start import wishes_of
from peer.work import Prepare, Setting
from tests.unit.training.classroom import write_digits


def test_a_peers_own_durations_stand_on_those_of_all() -> None:
    table = read_timing({"mix_s": 1, "step_s": 2, "peers": {"b": {"step_s": 20}}})
    assert (table.of("a").step_s, table.of("a").mix_s) == (2.0, 1.0)
    assert (table.of("b").step_s, table.of("b").mix_s) == (20.0, 1.0)
    assert table.of("a").evaluate_s == Timing().evaluate_s


def test_the_worse_end_decides_on_a_way() -> None:
    table = read_timing(
        {
            "latency_s": 0.1,
            "bandwidth_mb_s": 50,
            "peers": {"b": {"latency_s": 0.5}, "c": {"bandwidth_mb_s": 2}},
        }
    )
    assert table.between("a", "b") == (0.5, 50.0)
    assert table.between("b", "c") == (0.5, 2.0)
    assert table.between("a", "d") == (0.1, 50.0)


def test_who_is_ten_times_slower_stays_so_when_a_step_is_measured() -> None:
    table = read_timing({"calibrate": True, "peers": {"b": {"step_s": 0.2}}})
    assert table.calibrate
    measured = table.with_step_s(0.003)
    assert measured.of("a").step_s == 0.003
    assert measured.of("b").step_s == pytest.approx(0.03)
    assert measured.of("b").mix_s == TimingTable().of("b").mix_s


def test_ten_real_steps_are_timed_though_a_round_has_but_two(tmp_path: Path) -> None:
    shard = write_digits(tmp_path / "a.npz", first=0, num=40)
    settings = complete({"method": "gossip", "model": "mlp", **wishes_of({}, shard_facts(shard))})
    prepare = Prepare(
        peer="a",
        role=Role.PEER,
        run=bytes(16),
        settings=tuple(Setting(key, value) for key, value in sorted(settings.items())),
        data=str(shard),
        device="cpu",
        directory=str(tmp_path / "run"),
    )
    assert 0.0 < step_seconds(prepare) < 60.0

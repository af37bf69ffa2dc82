"""How a trainer is started: what it hears, and what its threads do while they wait."""

from collections.abc import Mapping
from pathlib import Path
from signal import SIG_BLOCK, SIGINT, SIGTERM, Signals, pthread_sigmask

import pytest

from peer.trainer_process import TrainerProcess, _environment

TWO_THREADS = {
    "OMP_NUM_THREADS": "2",
    "MKL_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "2",
}


def blocked(pid: int) -> set[Signals]:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigBlk:"):
            mask = int(line.split()[1], 16)
            return {number for number in Signals if mask >> (number - 1) & 1}
    raise AssertionError("a process without a mask")


def test_signals_are_for_the_node_alone(tmp_path: Path) -> None:
    before = pthread_sigmask(SIG_BLOCK, ())
    with TrainerProcess(tmp_path / "log") as trainer:
        assert blocked(trainer.pid) >= {SIGINT, SIGTERM}
        trainer.kill()
        assert trainer.last_words() == "killed by SIGKILL (out of memory?)"
    assert pthread_sigmask(SIG_BLOCK, ()) == before


@pytest.mark.parametrize(
    ("own", "threads", "expected"),
    [
        ({}, None, {"OMP_WAIT_POLICY": "PASSIVE"}),
        ({}, 2, {"OMP_WAIT_POLICY": "PASSIVE", **TWO_THREADS}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, None, {"OMP_WAIT_POLICY": "ACTIVE"}),
    ],
)
def test_threads_sleep_while_they_wait_unless_the_person_says_otherwise(
    own: Mapping[str, str], threads: int | None, expected: Mapping[str, str]
) -> None:
    assert _environment(own, threads) == {**expected, "PYTHONUNBUFFERED": "1"}

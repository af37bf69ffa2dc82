"""One experiment on virtual time and as real processes: the same bytes, round by round."""

import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENT = """
[run]
rounds = 3
[method]
name = "{method}"
[model]
name = "mlp"
[pace]
quorum = 1.0
[data]
make = ["optdigits"]
peers = 3
partition = "dirichlet:0.5"
samples_per_class = 4
size = 8
"""


def peer(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


ATTACKERS = """
[[peer]]
data = "shard0"
attack = "labelflip:0.5"
[[peer]]
data = "shard1"
attack = "noise"
[[peer]]
data = "shard2"
"""


@pytest.mark.parametrize(
    ("method", "peers"),
    [
        ("kinfolk", ""),
        pytest.param("craft", "", marks=pytest.mark.long),
        pytest.param("craft", ATTACKERS, marks=pytest.mark.long),
        pytest.param("kinfolk", ATTACKERS, marks=pytest.mark.long),
    ],
)
def test_a_simulation_and_a_launch_learn_the_same(tmp_path: Path, method: str, peers: str) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(EXPERIMENT.format(method=method) + peers)
    for command in ("simulate", "launch"):
        done = peer(command, file, "--out", tmp_path / command)
        assert done.returncode == 0, done.stderr
    verdict = peer("verify", tmp_path / "simulate", tmp_path / "launch")
    assert verdict.stdout == "the same: 9 snapshots of 3 peers in 3 rounds\n"
    assert verdict.returncode == 0


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(EXPERIMENT.format(method="fedc2i"))
    for seed in ("0", "1"):
        done = peer("simulate", file, "--seed", seed, "--out", tmp_path / seed)
        assert done.returncode == 0, done.stderr
    verdict = peer("verify", tmp_path / "0", tmp_path / "1")
    assert verdict.stdout.startswith("different: round 1, peer shard0: tensor params/")
    assert verdict.returncode == 1

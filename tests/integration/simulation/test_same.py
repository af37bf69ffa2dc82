"""One experiment on virtual time and as real processes: the same bytes, round by round."""

from functools import partial
from pathlib import Path

import pytest

from peer.ledger import EVENTS, read_events
from tests import typed
from tests.experiments import small

TIMEOUT_S = 140.0  # of one command, which takes ten seconds on a quiet machine

pytestmark = pytest.mark.timeout(3 * TIMEOUT_S)

peer = partial(typed.peer, within_s=TIMEOUT_S)


def experiment(method: str, *, peers: int = 3, more: str = "") -> str:
    return small(
        method,
        rounds=3,
        peers=peers,
        partition="dirichlet:0.5",
        pace="quorum = 1.0",
        more=more,
    )


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


def play(folder: Path, method: str, more: str = "") -> None:
    """The same file, simulated and launched, into folders of these names."""
    file = folder / "tiny.toml"
    file.write_text(experiment(method, more=more))
    for command, *options in (("simulate", "--workers", "2"), ("launch",)):
        done = peer(command, file, "--out", folder / command, *options)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ("kinfolk", "", "9 snapshots of 3 peers"),
        pytest.param(
            "fedc2i",
            '[share]\ncodec = "int8"',
            "9 snapshots of 3 peers",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "fedavg",
            '[share]\ncodec = "bf16"\n[relay]',
            "12 snapshots of 3 peers and a relay",
            marks=pytest.mark.long,
        ),
        *(
            pytest.param(method, f'[share]\ncodec = "{codec}"{more}', said, marks=pytest.mark.long)
            for method, codec, more, said in (
                ("kinfolk", "delta", "", "9 snapshots of 3 peers"),
                ("kinfolk", "topk", "", "9 snapshots of 3 peers"),
                ("fedproto", "topk", "", "9 snapshots of 3 peers"),
                ("scaffold", "delta", "", "9 snapshots of 3 peers"),
                ("craft", "delta", "\n[relay]", "12 snapshots of 3 peers and a relay"),
            )
        ),
        pytest.param("craft", "", "9 snapshots of 3 peers", marks=pytest.mark.long),
        pytest.param("craft", ATTACKERS, "9 snapshots of 3 peers", marks=pytest.mark.long),
        pytest.param("kinfolk", ATTACKERS, "9 snapshots of 3 peers", marks=pytest.mark.long),
        pytest.param(
            "craft", "[relay]", "12 snapshots of 3 peers and a relay", marks=pytest.mark.long
        ),
    ],
)
def test_a_simulation_and_a_launch_learn_the_same(
    tmp_path: Path, method: str, more: str, said: str
) -> None:
    play(tmp_path, method, more)
    verdict = peer("verify", tmp_path / "simulate", tmp_path / "launch")
    assert verdict.stdout == f"the same: {said} in 3 rounds\n"
    assert verdict.returncode == 0


@pytest.mark.long
def test_beside_a_relay_that_nobody_waits_for_equal_mixes_give_equal_results(
    tmp_path: Path,
) -> None:
    """Which of its models has come by when a round closes is a matter of time, nothing else is."""
    play(tmp_path, "kinfolk", '[relay]\nname = "hub"')
    simulated, launched = (rounds(tmp_path / command) for command in ("simulate", "launch"))
    compared = 0
    for round_no in (1, 2, 3):
        ours, theirs = simulated[round_no], launched[round_no]
        if any(ours[name][:2] != theirs[name][:2] for name in ours):
            break
        assert ours == theirs
        compared += 1
    assert compared >= 1  # in round 1 there is no model of it yet that could be mixed


def rounds(root: Path) -> dict[int, dict[str, tuple[object, object, object]]]:
    """By round and name: what was mixed, what of it was old, and the digest that came of it."""
    told: dict[int, dict[str, tuple[object, object, object]]] = {1: {}, 2: {}, 3: {}}
    for name in ("shard0", "shard1", "shard2", "hub"):
        for event in read_events(root / name / EVENTS):
            if event.name == "round":
                of = event.fields
                told[int(str(of["round"]))][name] = (of["used"], of["stale"], of["digest"])
    return told


@pytest.mark.long
def test_another_seed_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(experiment("fedc2i"))
    for seed in ("0", "1"):
        done = peer("simulate", file, "--seed", seed, "--out", tmp_path / seed)
        assert done.returncode == 0, done.stderr
    verdict = peer("verify", tmp_path / "0", tmp_path / "1")
    assert verdict.stdout.startswith("different: round 1, peer shard0: tensor params/")
    assert verdict.returncode == 1


@pytest.mark.long
@pytest.mark.parametrize("method", ["fedc2i", "craft"])
def test_the_number_of_workers_changes_nothing(tmp_path: Path, method: str) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(experiment(method, peers=5))
    for workers in ("1", "2", "3"):
        done = peer("simulate", file, "--out", tmp_path / workers, "--workers", workers)
        assert done.returncode == 0, done.stderr
    for workers in ("2", "3"):
        verdict = peer("verify", tmp_path / "1", tmp_path / workers)
        assert verdict.stdout == "the same: 15 snapshots of 5 peers in 3 rounds\n"

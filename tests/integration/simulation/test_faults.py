"""Faults in rounds are the same run on virtual time and as real processes, bit for bit."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests import typed
from tests.experiments import fault, small

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "faults.toml"
LIVES = small(
    "kinfolk",
    rounds=7,
    peers=4,
    partition="dirichlet:0.5",
    pace="quorum = 1.0",
    more=fault("join", at_round=3, peer="shard3")
    + fault("leave", at_round=5, peer="shard1")
    + fault("loss", at_round=2, rate=0.3)
    + fault("partition", at_round=4, groups=[["shard0", "shard3"], ["shard1", "shard2"]])
    + fault("heal", at_round=6),
)
# Nobody hears of shard2, which is slow: the others run ahead, and it needs their old rounds.
AHEAD = small(
    "gossip",
    rounds=8,
    peers=3,
    pace="quorum = 1.0\nbound_s = 100.0",
    more=fault(
        "loss",
        at_round=2,
        rate=1.0,
        links=[["shard2", "shard0"], ["shard2", "shard1"]],
        one_way=True,
    )
    + fault("slow", at_round=1, peer="shard2", factor=20.0),
)


peer = partial(typed.peer, within_s=280.0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EXAMPLE.read_text(), "the same: 52 snapshots of 6 peers in 11 rounds\n"),
        # shard3 plays 3 to 7, shard1 1 to 4, the others all
        (LIVES, "the same: 23 snapshots of 4 peers in 7 rounds\n"),
        (AHEAD, "the same: 24 snapshots of 3 peers in 8 rounds\n"),
        *(
            (
                f'{LIVES}[share]\ncodec = "{codec}"',
                "the same: 23 snapshots of 4 peers in 7 rounds\n",
            )
            for codec in ("delta", "topk")
        ),
    ],
    ids=["partition-and-dropout", "join-leave-loss", "one-lags", "delta", "topk"],
)
def test_under_faults_a_simulation_and_a_launch_learn_the_same(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "hard.toml"
    file.write_text(text)
    survivals = []
    for command in ("simulate", "launch"):
        done = peer(command, file, "--out", tmp_path / command)
        assert done.returncode == 0, done.stderr
        assert "How the peers came through" in done.stdout
        survivals.append(json.loads((tmp_path / command / "survival.json").read_text()))
        assert (tmp_path / command / "survival.png").exists()
    verdict = peer("verify", tmp_path / "simulate", tmp_path / "launch")
    assert verdict.stdout == said
    assert verdict.returncode == 0
    for one, other in zip(*(survival["peers"] for survival in survivals), strict=True):
        for key in ("name", "rounds_finished", "rounds_degraded", "sat_out", "stale", "nothing"):
            assert one[key] == other[key]
        missed = [[play["missed"] for play in side["rounds"]] for side in (one, other)]
        assert missed[0] == missed[1]

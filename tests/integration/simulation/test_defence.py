"""A peer that attacks weighs less than its share with those that it harms; see docs/defence.md."""

from pathlib import Path
from statistics import fmean

import pytest

from peer.influence import read_influence
from tests.experiments import small
from tests.integration.simulation.quiet import simulated

TABLES = """
[solver]
lr = 0.1
epochs = 3
[admit]
norm = false
[[peer]]
data = "shard0"
attack = "{attack}"
"""
HONEST = [f"shard{number}" for number in range(1, 5)]


def weight_of_the_attacker(folder: Path, method: str, attack: str) -> float:
    """By the mean of the honest neighbours' weights, over the last half of the rounds."""
    peers = "".join(f'[[peer]]\ndata = "{name}"\n' for name in HONEST)
    text = small(
        method,
        rounds=8,
        peers=5,
        partition="iid",
        samples_per_class=8,
        pace="quorum = 1.0",
        more=TABLES.format(attack=attack) + peers,
    )
    out = simulated(folder, text)
    ratios = []
    for name in HONEST:
        weights = read_influence(out / name / "influence.npz").relative()
        ratios.append(weights["shard0"] / fmean(weights[h] for h in HONEST if h != name))
    return fmean(ratios)


@pytest.mark.long
@pytest.mark.parametrize("attack", ["signflip", "noise", "scale", "labelflip"])
def test_influence_weighs_an_attacker_down(tmp_path: Path, attack: str) -> None:
    assert weight_of_the_attacker(tmp_path, "fedc2i", attack) < 0.85


@pytest.mark.long
def test_gossip_weighs_an_attacker_like_anybody(tmp_path: Path) -> None:
    assert weight_of_the_attacker(tmp_path, "gossip", "signflip") == pytest.approx(1.0)

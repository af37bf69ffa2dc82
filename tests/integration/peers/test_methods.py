"""Every method of this step, and models with running statistics, between two real peers."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.integration.peers.village import LOOPBACK, Process, village

ROUNDS = 3
BATCHNORM = {"model": "cnn", "model__norm": "batch"}
MLP = {"model": "mlp"}


def played(tmp_path: Path, **options: object) -> dict[str, Process]:
    """Two peers play the rounds to their end; what they leave is finite."""
    with village(tmp_path) as place:
        user = place.user()
        user.coordinator(*LOOPBACK, "--run=two", founders=2, run__rounds=ROUNDS, **options)
        place.deal("ab")
        peers = {name: user.peer(name) for name in "ab"}
        for name, peer in peers.items():
            assert peer.end() == 0, peer.err
            assert sorted(peer.rounds()) == list(range(1, ROUNDS + 1))
            model = load_file(user.cwd / "runs" / "two" / name / "model.safetensors")
            assert all(np.isfinite(tensor).all() for tensor in model.values())
    return peers


@pytest.mark.parametrize(
    ("method", "buffers"),
    [
        pytest.param("gossip", "average", marks=pytest.mark.long),
        ("fedc2i", "local"),
        pytest.param("kinfolk", "average", marks=pytest.mark.long),
        pytest.param("kinfolk", "local", marks=pytest.mark.long),
    ],
)
def test_batchnorm_models_mix(tmp_path: Path, method: str, buffers: str) -> None:
    peers = played(tmp_path, method=method, mix__buffers=buffers, **BATCHNORM)
    for name, other in ("ab", "ba"):
        assert [r["used"] for r in peers[name].rounds().values()] == [{}, {other: 1}, {other: 2}]


@pytest.mark.long
@pytest.mark.parametrize("method", ["local", "local+fedconst"])
def test_methods_that_need_nobody_ask_nobody(tmp_path: Path, method: str) -> None:
    for peer in played(tmp_path, method=method, **MLP).values():
        for record in peer.rounds().values():
            assert (record["used"], record["missing"]) == ({}, [])
            assert record["pulled_bytes"] == 0


@pytest.mark.long
@pytest.mark.parametrize("method", ["gossip", "fedc2i", "kinfolk"])
def test_methods_that_mix_use_both_neighbours(tmp_path: Path, method: str) -> None:
    for peer in played(tmp_path, method=method, **MLP).values():
        assert all(len(peer.rounds()[number]["used"]) == 1 for number in range(2, ROUNDS + 1))


OWN_MODEL = """
from torch import nn

def make(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {width}), nn.ReLU(), nn.Linear({width}, 10))
"""


@pytest.mark.long
def test_own_models_that_differ_under_one_name_do_not_meet(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        one, other = place.user(), place.user()
        coordinator = one.coordinator(*LOOPBACK, founders=2, model="own:make", run__rounds=ROUNDS)
        place.deal("ab")
        for number, user in enumerate((one, other)):
            (user.cwd / "own.py").write_text(OWN_MODEL.format(width=20 + number))
        assert other.type("peer", "join", coordinator.out.strip()).end() == 0
        asked = (*LOOPBACK, "--option", "model=own:make")
        first = one.peer("a", *asked)
        first.wait_for_event("lobby", ready=1)
        second = other.peer("b", *asked)
        assert second.end() == 2, second.err
        (error,) = second.errors()
        assert error.startswith("Error: schema: the shared tensors of your model have other names")
        assert first.code is None

"""Equal seeds give equal bytes, whatever the order in which processes come and go."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.integration.peers.village import LOOPBACK, village

ROUNDS = 6
NAMES = "abc"


def snapshots(tmp_path: Path, *, seed: int, order: Sequence[str]) -> dict[str, str]:
    """Play a run; the digest of each file that its peers serve at the end."""
    with village(tmp_path) as place:
        place.deal(NAMES)
        user = place.user()
        user.coordinator(
            *("--run=same", *LOOPBACK),
            founders=3,
            model="mlp",
            run__rounds=ROUNDS,
            run__seed=seed,
            pace__quorum=1.0,
        )
        peers = [user.peer(name) for name in order]
        for peer in peers:
            assert peer.end() == 0, peer.err
            assert not any(record["degraded"] for record in peer.rounds().values())
        folder = user.cwd / "runs" / "same"
        return {
            str(path.relative_to(folder)): blake2b(path.read_bytes()).hexdigest()
            for path in folder.glob("*/state/snapshots/*.safetensors")
        }


@pytest.mark.long
def test_the_same_seed_publishes_the_same_bytes(tmp_path: Path) -> None:
    first = snapshots(tmp_path / "first", seed=3, order="abc")
    assert len(first) == 2 * len(NAMES)  # the last two rounds of each
    assert snapshots(tmp_path / "again", seed=3, order="cba") == first
    other = snapshots(tmp_path / "other", seed=4, order="abc")
    assert other.keys() == first.keys()
    assert not set(other.values()) & set(first.values())

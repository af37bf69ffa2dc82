"""A run over IPv6, where only the coordinator was told so."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.peers.village import village


def has_ipv6() -> bool:
    with closing(socket.socket(socket.AF_INET6)) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@pytest.mark.long
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_peers_follow_their_coordinator_to_ipv6(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        user = place.user()
        user.coordinator("--bind=[::1]:0", founders=2, model="mlp", run__rounds=3)
        place.deal("ab")
        peers = [user.peer(name, f"--name={name}") for name in "ab"]
        for peer in peers:
            assert peer.end() == 0, peer.err
            assert "reachable at tcp://[::1]:" in peer.err
            assert [len(record["used"]) for record in peer.rounds().values()] == [0, 1, 1]

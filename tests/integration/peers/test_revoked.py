"""A member of a run of real processes is shut out: it ends, and the others finish without it."""

from pathlib import Path

import pytest

from tests.integration.peers.village import LOOPBACK, village

ROUNDS = 40
PACE = {"pace__grace_s": 0.1, "pace__drain_s": 5}


@pytest.mark.long
def test_a_revoked_peer_ends_and_the_others_finish_without_it(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        place.deal("abc")
        user = place.user()
        user.coordinator(
            *LOOPBACK, "--lease=1", founders=3, model="mlp", run__rounds=ROUNDS, **PACE
        )
        a, b, c = peers = [user.peer(name) for name in "abc"]
        for peer in peers:
            peer.wait_for_round(2)
        revoke = user.type("coordinator", "revoke", "c", said="revoke")
        assert revoke.end() == 0, revoke.err
        assert c.end() == 2
        assert c.errors() == [
            "Error: this key was revoked: the run goes on without it, under whatever name"
        ]
        at = max(*a.rounds(), *b.rounds())
        for peer in (a, b):
            assert peer.end() == 0, peer.err
            rounds = peer.rounds()
            assert sorted(rounds) == list(range(1, ROUNDS + 1))
            for number in range(at + 2, ROUNDS + 1):
                told = rounds[number]
                assert "c" not in {*told["used"], *told["stale"], *told["missing"]}
        again = user.peer("c")
        assert again.end() == 2
        assert "this key was revoked" in again.err

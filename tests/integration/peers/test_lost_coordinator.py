"""A run whose coordinator dies, at whose ports strangers knock, and that loses a peer as well."""

import re
from pathlib import Path
from signal import SIGKILL

from peer.summary import read_summary
from protocol.joinstring import JoinString
from protocol.transport.keys import load_identity
from tests.integration.peers.strangers import molest
from tests.integration.peers.village import LOOPBACK, Process, User, village

ROUNDS = 60
PACE = {"pace__silence_s": 4.0, "pace__grace_s": 0.1, "pace__drain_s": 5}


def test_a_run_without_coordinator_and_with_strangers_at_its_ports_loses_a_peer_and_finishes(
    tmp_path: Path,
) -> None:
    with village(tmp_path) as place:
        place.deal("abc")
        user = place.user()
        coordinator = user.coordinator(
            *LOOPBACK, "--lease=1", founders=3, model="mlp", run__rounds=ROUNDS, **PACE
        )
        join = JoinString.parse(coordinator.out)
        molest(join.port, join.curve_key, seed=0)
        a, b, c = peers = [user.peer(name) for name in "abc"]
        for peer in peers:
            peer.wait_for_round(1)
        molest(join.port, join.curve_key, seed=1)
        coordinator.signal(SIGKILL)
        for seed, peer in enumerate(peers):
            molest(port_of(peer), key_of(peer, user), seed=seed)
        for peer in peers:
            peer.wait_for_event("coordinator-lost")
        c.signal(SIGKILL)
        for peer in (a, b):
            assert peer.end() == 0, peer.err
            assert peer.errors() == []
            finished_and_told_who_was_missing(peer, user)


def port_of(peer: Process) -> int:
    found = re.search(r"reachable at tcp://127\.0\.0\.1:(\d+)", peer.err)
    assert found is not None
    return int(found[1])


def key_of(peer: Process, user: User) -> bytes:
    return load_identity(user.home / "keys" / f"{peer.name[-1]}.key").curve_public


def finished_and_told_who_was_missing(peer: Process, user: User) -> None:
    rounds = peer.rounds()
    assert sorted(rounds) == list(range(1, ROUNDS + 1))
    other = "b" if peer.name.endswith("a") else "a"
    assert rounds[ROUNDS]["used"].keys() == {other}
    assert not any(other in record["missing"] for record in rounds.values())
    assert peer.said("lost", peer="c")
    assert rounds[ROUNDS]["missing"] == ["c"]
    assert all(record["refused"] == {} for record in rounds.values())
    (folder,) = user.cwd.glob(f"runs/*/{peer.name[-1]}")
    degraded = sum(record["degraded"] for record in rounds.values())
    assert read_summary(folder / "summary.json").rounds_degraded == degraded > 0

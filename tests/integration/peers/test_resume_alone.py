"""A peer and its coordinator are killed; the peer comes back, the coordinator later or never."""

from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from peer.layout import view_file
from peer.verify import verify
from tests.integration.peers.test_crash_anywhere import NAMES, PACE, ROUNDS
from tests.integration.peers.village import LOOPBACK, Process, User, Village, village

COORDINATOR = ("--run=alone", *LOOPBACK)
SLOW = ("--faults=slow.toml",)  # so that there is time to look on


def begin(place: Village, names: str) -> tuple[User, Process, dict[str, Process]]:
    place.deal(names)
    user = place.user()
    (user.cwd / "slow.toml").write_text(
        '[[fault]]\nkind = "slow"\nat_round = 1\npeer = "a"\nfactor = 10.0\n'
    )
    coordinator = user.coordinator(
        *COORDINATOR,
        founders=len(names),
        model="mlp",
        run__rounds=ROUNDS,
        run__seed=5,
        **PACE,
    )
    return user, coordinator, {n: user.peer(n, *LOOPBACK, *SLOW) for n in names}


def finished(peers: dict[str, Process]) -> None:
    for peer in peers.values():
        assert peer.end() == 0, peer.err


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_peer_goes_on_by_the_view_that_it_kept_and_the_run_is_as_if_unbroken(
    tmp_path: Path,
) -> None:
    names = NAMES[:3]
    with village(tmp_path / "unbroken") as place:
        user, _, peers = begin(place, names)
        finished(peers)
        unbroken = user.cwd / "runs" / "alone"
    with village(tmp_path / "broken") as place:
        user, coordinator, peers = begin(place, names)
        peers["b"].wait_for_round(3)
        coordinator.signal(SIGKILL)
        peers["b"].signal(SIGKILL)
        coordinator.end()
        peers["b"].end()
        peers["b"] = back = user.peer("b", *LOOPBACK, *SLOW, "--resume")
        finished(peers)
        (lost,) = back.happenings("coordinator-lost")
        assert "going on by the view of epoch" in lost["reason"]
        assert max(back.rounds()) == ROUNDS
        verdict = verify(unbroken, user.cwd / "runs" / "alone")
        assert verdict.first is None, str(verdict.first)
        assert verdict.snapshots == ROUNDS * len(names)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_it_registers_with_a_coordinator_that_comes_back_and_waits_for_it_where_its_view_is_torn(
    tmp_path: Path,
) -> None:
    with village(tmp_path) as place:
        user, coordinator, peers = begin(place, NAMES[:2])
        for peer in peers.values():
            peer.wait_for_round(2)
        coordinator.signal(SIGKILL)
        coordinator.end()
        for peer in peers.values():
            peer.signal(SIGKILL)
            peer.end()
        torn = view_file(user.cwd / "runs" / "alone" / "b")
        torn.write_bytes(torn.read_bytes()[:-1])
        peers = {name: user.peer(name, *LOOPBACK, *SLOW, "--resume") for name in peers}
        peers["a"].wait_for_event("coordinator-lost")
        told = f"b: {torn.relative_to(user.cwd)} is torn; this peer waits for the coordinator"
        peers["b"].wait_for("word of it", lambda: told in peers["b"].err)
        assert not peers["b"].happenings("started")
        again = user.type("coordinator", "start", "--run=alone", said="coordinator")
        again.wait_for("join string", lambda: again.out.endswith("\n"))
        peers["a"].wait_for_event("coordinator-back")
        finished(peers)
        assert max(peers["b"].rounds()) == ROUNDS
        again.signal(SIGTERM)
        assert again.end() == 0

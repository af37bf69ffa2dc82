"""A key that the coordinator revokes is refused by simulated peers as by real ones."""

from pathlib import Path
from typing import Any

from peer.ledger import EVENTS, Event, read_events
from peer.machine import Phase
from peer.simulation.coordinator_host import OPERATOR, key_of
from peer.simulation.world import World
from protocol.ids import PeerId
from protocol.wire.codec import COORDINATOR
from protocol.wire.messages import Revoke
from tests.faults.toyland import crowd

B = PeerId("p001")
PEERS, ROUNDS = 5, 6


def revoke(world: World, name: PeerId) -> None:
    world.coordinator.receive(b"an operator's", OPERATOR, COORDINATOR.encode(Revoke(name)))


def play_to_round(world: World, round_no: int) -> None:
    def behind() -> bool:
        machines = [host.node.machine for host in world.hosts.values()]
        return any(m is None or m.round_no < round_no for m in machines)

    while behind():
        assert world.step()


def deafen(world: World, name: PeerId) -> None:
    """Nothing that the coordinator or a neighbour's view says reaches this peer any more."""
    membership: Any = world.hosts[name].node._membership
    membership.receive = lambda header, now_s: membership._rest(now_s)
    membership.overhear = lambda signed: ()


def rounds_of(folder: Path, name: PeerId) -> dict[int, Event]:
    events = read_events(folder / name / EVENTS)
    return {int(str(e.fields["round"])): e for e in events if e.name == "round"}


def test_whoever_hears_of_its_revocation_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    world = crowd(tmp_path, PEERS, rounds=ROUNDS)
    play_to_round(world, 3)
    revoke(world, B)
    world.run(lambda: None)
    ends = {name: host.over.code for name, host in world.hosts.items() if host.over is not None}
    assert ends == {name: 2 if name == B else 0 for name in world.hosts}
    assert len(rounds_of(tmp_path, B)) < ROUNDS
    for name in world.hosts.keys() - {B}:
        assert B not in rounds_of(tmp_path, name)[ROUNDS].fields["used"]  # type: ignore[operator]


def test_one_that_goes_on_all_the_same_is_answered_by_nobody(tmp_path: Path) -> None:
    world = crowd(tmp_path, PEERS, rounds=ROUNDS)
    play_to_round(world, 3)
    deafen(world, B)
    revoke(world, B)
    others = [host for name, host in world.hosts.items() if name != B]
    while not all(B in host.node.machine._roster.revoked for host in others if host.node.machine):
        assert world.step()
    for host in others:
        assert not host.admits(B)
        assert all(host.admits(other.me) for other in others)
        assert host._names.get(key_of(B, "curve")) is None
    machine = world.hosts[B].node.machine
    assert machine is not None
    assert machine.phase is not Phase.LEFT
    since = machine.round_no + 1  # what it has asked for before may be here already
    world.run(lambda: None)
    rounds = rounds_of(tmp_path, B)
    assert sorted(rounds) == list(range(1, ROUNDS + 1)), "it went on by itself"
    assert rounds[2].fields["used"]
    assert [rounds[n].fields["used"] for n in range(since, ROUNDS + 1)] == [{}] * (
        ROUNDS + 1 - since
    )
    for host in others:
        assert host.over is not None
        assert host.over.code == 0
        assert B not in rounds_of(tmp_path, host.me)[ROUNDS].fields["used"]  # type: ignore[operator]

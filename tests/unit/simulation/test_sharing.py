"""What many simulated peers have in common is there once, however many they are."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from peer.machine import Phase
from peer.simulation.world import World
from tests.faults.toyland import crowd

# Of a toy peer, which takes 27 kB. With a signed view of its own, each of N would take N x 130
# bytes more, and at 100 peers a further one 26 kB more.
MOST_BYTES = 38_000
STATES = 2  # joining and ready: nobody is lost or leaves before round 1


def play_until_all(world: World, phase: Phase) -> None:
    """Step until every peer has come so far at least once."""
    waiting = set(world.hosts)
    while waiting and world.step():
        waiting = {n for n in waiting if world.hosts[n].node.phase != phase.value}
    assert not waiting


@pytest.mark.parametrize("num_peers", [20, 60])
def test_all_peers_hold_one_view(tmp_path: Path, num_peers: int) -> None:
    world = crowd(tmp_path, num_peers)
    play_until_all(world, Phase.MIX)
    hosts = world.hosts.values()
    views = {id(host.node.view) for host in hosts}
    signed = {id(host.node._signed) for host in hosts}
    signed |= {id(host.node._membership._signed) for host in hosts}
    signed |= {id(view[1]) for host in hosts if (view := host._view) is not None}
    assert len(views) == len(signed) == 1


@pytest.mark.parametrize("num_peers", [20, 60])
def test_views_of_the_lobby_share_their_members(tmp_path: Path, num_peers: int) -> None:
    world = crowd(tmp_path, num_peers)
    held = set()
    while any(host.node.view is None for host in world.hosts.values()):
        assert world.step()
    views = {id(v): v for host in world.hosts.values() if (v := host.node.view) is not None}
    held = {id(member) for view in views.values() for member in view.members}
    assert len(views) > num_peers // 2, "each is given the view of its own instant"
    assert len(held) <= STATES * num_peers
    assert sum(len(view.members) for view in views.values()) > 5 * len(held)


def held_by(folder: Path, num_peers: int) -> int:
    """Bytes of Python's own that a world of toys holds at its end, when nothing is under way."""
    gc.collect()
    tracemalloc.start()
    try:
        world = crowd(folder, num_peers)
        world.run(lambda: None)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_a_further_peer_costs_no_list_of_all_others(tmp_path: Path) -> None:
    held_by(tmp_path / "first", 20)  # what is kept by the process for good
    some, many = (held_by(tmp_path / str(n), n) for n in (80, 120))
    assert (many - some) / 40 < MOST_BYTES

"""Nodes and the directory over a wire that loses, breaks and comes back."""

import pytest

from protocol.wire.membership_effects import (
    CoordinatorBack,
    CoordinatorLost,
    Refused,
    Settled,
    ViewChanged,
)
from protocol.wire.messages import View
from tests.unit.membership.wire import LEASE_S, Peer, World


def views(peer: Peer) -> list[View]:
    return [effect.view for effect in peer.told if isinstance(effect, ViewChanged)]


def states(peer: Peer) -> list[str]:
    return [member.state for member in views(peer)[-1].members]


def founding(world: World) -> set[tuple[str, ...]]:
    """Round 1's roster, as each node knows it."""
    return {views(peer)[-1].founding for peer in world.peers.values()}


def test_two_nodes_find_each_other_and_the_run_starts() -> None:
    world = World(founders=2)
    a, b = world.add("a"), world.add("b")
    world.run(2.0)
    assert founding(world) == {("a", "b")}
    assert a.heard(Settled) == b.heard(Settled)


def test_all_take_the_manifest_of_the_first_and_a_wish_against_it_is_told() -> None:
    world = World(founders=2)
    world.add("a", completes={"lr": 1})
    late = world.add("b", wishes={"lr": 2})
    other = world.add("c", completes={"lr": 7})
    world.run(2.0)
    (told,) = late.heard(Refused)
    assert told == Refused("lr: you asked for 2, the run has 1")
    assert founding(world) >= {("a", "c")}
    (settled,) = other.heard(Settled)
    assert isinstance(settled, Settled)
    assert settled.options == {"lr": 1}


@pytest.mark.parametrize("seed", range(20))
def test_the_run_starts_though_a_third_of_all_messages_is_lost(seed: int) -> None:
    world = World(founders=4, loss=0.33, seed=seed)
    for name in "abcd":
        world.add(name)
    world.run(200.0)
    assert world.book.founding == ("a", "b", "c", "d")
    assert founding(world) == {("a", "b", "c", "d")}


def test_a_restarted_coordinator_is_found_again_and_everybody_is_still_ready() -> None:
    world = World(founders=2)
    a, b = world.add("a"), world.add("b")
    world.run(5.0)
    world.kill_coordinator()
    world.run(40.0)
    assert len(a.heard(CoordinatorLost)) == len(b.heard(CoordinatorLost)) == 1
    world.start_coordinator()
    world.run(60.0)
    assert len(a.heard(CoordinatorBack)) == len(b.heard(CoordinatorBack)) == 1
    assert [entry.state for entry in world.book.entries.values()] == ["ready", "ready"]
    assert not a.machine.is_over
    assert [view.epoch.incarnation for view in views(a)][-1] == 2


def test_a_short_restart_goes_unnoticed() -> None:
    world = World(founders=2)
    a = world.add("a")
    world.run(5.0)
    world.kill_coordinator()
    world.run(6.0)
    world.start_coordinator()
    world.run(60.0)
    assert a.heard(CoordinatorLost) == []


def test_a_node_that_is_cut_off_for_long_is_lost_and_then_ready_again() -> None:
    world = World(founders=1)
    a, b = world.add("a"), world.add("b")
    world.run(5.0)
    b.is_dead_wire = True
    world.run(5.0 + 2 * LEASE_S)
    assert states(a) == ["ready", "lost"]
    assert len(b.heard(CoordinatorLost)) == 1
    b.is_dead_wire = False
    world.run(world.now_s + 15.0)
    assert states(a) == states(b) == ["ready", "ready"]


def test_a_process_that_was_replaced_is_told_and_ends() -> None:
    world = World(founders=1)
    old = world.add("a")
    world.run(2.0)
    new = world.add("a", instance=1)
    world.run(20.0)
    assert old.heard(Refused) == [Refused("another process has taken over the name a")]
    assert new.heard(Refused) == []
    assert [entry.state for entry in world.book.entries.values()] == ["ready"]


def test_no_node_ever_sees_an_epoch_go_back() -> None:
    world = World(founders=3, loss=0.2, seed=1)
    for name in "abc":
        world.add(name)
    for restart_s in (10.0, 30.0, 35.0):
        world.run(restart_s)
        world.kill_coordinator()
        world.run(restart_s + 3.0)
        world.start_coordinator()
    world.run(120.0)
    for peer in world.peers.values():
        epochs = [(view.epoch.incarnation, view.epoch.counter) for view in views(peer)]
        assert epochs == sorted(set(epochs))

"""Those who start together come to the coordinator no faster than it takes strangers."""

from coordinator.gate import STRANGERS, Gate
from peer.simulation.routes import queue_s

MOST_PEERS = 2048


def test_no_newcomer_of_a_crowd_is_dropped() -> None:
    gate = Gate()
    for number in range(1, MOST_PEERS + 1):
        assert gate.admits_stranger(number.to_bytes(32), queue_s(number)), number
    assert not gate.dropped


def test_few_do_not_wait_and_the_last_of_many_not_for_long() -> None:
    assert queue_s(int(STRANGERS.burst)) == 0.0
    assert queue_s(MOST_PEERS) < 30.0

"""Bytes by neighbour, from one record to the next."""

from peer.traffic import Traffic
from protocol.ids import PeerId

A, B = PeerId("a"), PeerId("b")


def test_what_was_taken_is_not_counted_again() -> None:
    traffic = Traffic()
    traffic.pulled(B, 5)
    traffic.pulled(A, 3)
    traffic.pulled(B, 2)
    traffic.sent(A, 9)
    assert traffic.take() == ({A: 3, B: 7}, {A: 9})
    traffic.sent(B, 1)
    assert traffic.take() == ({}, {B: 1})

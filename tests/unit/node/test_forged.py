"""A member that passes snapshots on that are not its own, or not what their sender made."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from peer.effects import Fetch
from protocol.wire.codec import PEER, decode_document, encode_document
from protocol.wire.digest import digest
from protocol.wire.messages import Offer, SnapshotManifest
from protocol.wire.signing import sign_snapshot
from tests.unit.machine.stage import manifest_of
from tests.unit.node.dweller import Dweller, secret_of
from tests.unit.node.valley import Valley, ends

ROUNDS = 4
Forger = Callable[[Offer], Offer]


class Thieves(Valley):
    """What c offers is forged on its way."""

    forge: Forger
    fetched: set[tuple[str, str]]  # by whom of whom

    def pull(self, dweller: Dweller, fetch: Fetch) -> None:
        self.fetched.add((dweller.name, fetch.neighbour))
        super().pull(dweller, fetch)

    def answer(self, dweller: Dweller, route: bytes, header: bytes) -> None:
        message = PEER.decode(header)
        if dweller.name == "c" and isinstance(message, Offer):
            header = PEER.encode(self.forge(message))
        super().answer(dweller, route, header)


def thieves(forge: Forger) -> Thieves:
    valley = Thieves(founders=3, run__rounds=ROUNDS, pace__drain_s=5.0)
    valley.forge, valley.fetched = forge, set()
    return valley


def of(offer: Offer, sender: str, *, signed_by: str) -> Offer:
    """A's snapshot of the same round, under this name, with this one's word for it."""
    own = decode_document(SnapshotManifest, offer.manifest)
    theirs = replace(manifest_of("a", own.round_no), run=own.run, sender=sender)
    encoded = encode_document(theirs)
    signature = sign_snapshot(secret_of(signed_by), digest(encoded))
    return replace(offer, manifest=encoded, signature=signature)


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (lambda offer: of(offer, "a", signed_by="a"), "sender a, not c"),
        (lambda offer: of(offer, "a", signed_by="c"), "sender a, not c"),
        (lambda offer: of(offer, "c", signed_by="a"), "the signature does not fit"),
        (lambda offer: of(offer, "c", signed_by="x"), "the signature does not fit"),
        (lambda offer: replace(offer, signature=bytes(64)), "the signature does not fit"),
    ],
    ids=["passed on", "signed for a", "renamed", "by a stranger", "unsigned"],
)
def test_a_snapshot_without_its_sender_s_own_word_is_never_fetched_nor_mixed(
    forge: Forger, why: str
) -> None:
    valley = thieves(forge)
    a, b, _ = valley.settle("abc")
    assert valley.play(600.0)
    assert ends([a, b]) == dict.fromkeys("ab", (0, "finished"))
    for dweller, other in ((a, "b"), (b, "a")):
        assert any(peer == "c" and why in reason for peer, reason in dweller.heard("misbehaved"))
        assert not any(peer != "c" for peer, _ in dweller.heard("misbehaved"))
        for number in range(2, ROUNDS + 1):
            record = dweller.records[number]
            assert record.used.keys() == {other}
            assert "c" not in record.stale
    assert not valley.fetched & {("a", "c"), ("b", "c")}


def test_its_own_word_is_taken() -> None:
    valley = thieves(lambda offer: offer)
    a, *_ = valley.settle("abc")
    assert valley.play(600.0)
    assert a.records[ROUNDS].used.keys() == {"b", "c"}
    assert {("a", "c"), ("b", "c")} < valley.fetched
    assert a.heard("misbehaved") == []

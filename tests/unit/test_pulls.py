"""What tickets of pulls stand for, and that of two for one buffer only the later one counts."""

from dataclasses import replace
from pathlib import Path

from peer.effects import Fetch, Onward
from peer.pulls import Pulls
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.wire.codec import encode_document
from protocol.wire.link_effects import Step
from protocol.wire.messages import Part
from tests.unit.machine.stage import digest_of, manifest_of, ref_of

B = PeerId("b")
INBOX, WHERE, KEY = Path("/inbox"), "tcp://b:1", b"k" * 32


def fetch(round_no: int, slot: int) -> Fetch:
    return Fetch(B, manifest_of("b", round_no), digest_of("b", round_no), slot)


def test_a_ticket_tells_each_byte_once_and_what_came() -> None:
    pulls = Pulls()
    order = pulls.order(fetch(1, 0), INBOX, WHERE, KEY)
    assert order.path == INBOX / "b.0.body"
    assert pulls.more(order.ticket, 100) == 100
    assert pulls.more(order.ticket, 100) == 0
    whole = SnapshotRef(encode_document(manifest_of("b", 1)), order.digest, "/inbox/b.0.body", 0)
    assert pulls.finish(order.ticket, 130) == (30, whole)
    assert pulls.finish(order.ticket, 130) == (0, None)
    assert not pulls.drop(order.ticket)


def test_a_step_has_a_file_of_its_own_and_becomes_the_whole() -> None:
    pulls = Pulls()
    step = Step(replace(manifest_of("b", 2), part=Part.STEP, base=digest_of("b", 1)), b"s" * 32)
    onward = Onward(ref_of("b", 1), step)
    order = pulls.order(replace(fetch(2, 1), onward=onward), INBOX, WHERE, KEY)
    assert (order.digest, order.path) == (step.digest, INBOX / "b.1.step")
    assert order.files == {INBOX / "b.1.step", INBOX / "b.1.body"}
    _, came = pulls.finish(order.ticket, 10)
    assert came is not None
    assert (came.digest, came.path) == (digest_of("b", 2), "/inbox/b.1.body")


def test_the_end_of_a_pull_says_nothing_about_a_later_one_to_its_buffer() -> None:
    pulls = Pulls()
    first, other = (pulls.order(fetch(1, slot), INBOX, WHERE, KEY).ticket for slot in (0, 1))
    later = pulls.order(fetch(2, 0), INBOX, WHERE, KEY).ticket
    assert not pulls.drop(first)
    assert pulls.more(first, 10) == 0
    assert pulls.drop(later)
    assert pulls.drop(other)

"""Who is a member, while the coordinator is out of reach: neighbours pass its word on."""

from dataclasses import replace

from protocol.ids import PeerId
from protocol.wire.codec import PEER
from protocol.wire.messages import MAX_REQUEST_BYTES, Epoch, Revoke, Seen, SignedView, View
from protocol.wire.signing import open_view, seal_view, sign_public
from tests.unit.node.dweller import Dweller
from tests.unit.node.valley import SECRET, Valley, ends


def two_and_a_cut(rounds: int = 60) -> tuple[Valley, Dweller, Dweller]:
    """A run of a and b in which b has lost the coordinator."""
    valley = Valley(founders=2, run__rounds=rounds, pace__drain_s=20.0)
    a, b = valley.add("a"), valley.add("b")
    valley.play(100.0, until=lambda: 1 in b.records)
    valley.cut_off(b)
    valley.play(100.0, until=lambda: bool(b.heard("coordinator-lost")))
    return valley, a, b


def test_who_cannot_reach_the_coordinator_learns_of_a_newcomer_from_its_neighbour() -> None:
    valley, a, b = two_and_a_cut()
    assert valley.play(300.0, until=lambda: bool(b.heard("coordinator-lost")))
    c = valley.add("c")
    assert valley.play(400.0)
    assert ends([a, b, c]) == dict.fromkeys("abc", (0, "finished"))
    assert b.heard("view-passed")[0][0] == "a"
    assert b.node.view == a.node.view
    assert {"a", "b"} <= c.records[60].used.keys()
    assert b.records[60].used.keys() == {"a", "c"}


def test_a_view_that_is_passed_on_twice_is_told_once() -> None:
    valley, _, b = two_and_a_cut()
    valley.add("c")
    assert valley.play(400.0)
    assert b.node.view is not None
    epochs = [reason for _, reason in b.heard("view-passed")]
    assert len(epochs) == len(set(epochs))


def test_a_revoked_peer_is_used_no_more_and_ends() -> None:
    valley = Valley(founders=3, run__rounds=12, pace__drain_s=20.0)
    a, b, c = (valley.add(name) for name in "abc")
    valley.play(100.0, until=lambda: all(3 in d.records for d in (a, b, c)))
    valley.order(Revoke("c"))
    revoked_in = max(a.records), max(b.records)
    assert valley.play(200.0)
    assert ends([a, b, c])["c"][0] == 2
    assert "this key was revoked" in ends([c])["c"][1]
    assert ends([a, b]) == dict.fromkeys("ab", (0, "finished"))
    for dweller, last in zip((a, b), revoked_in, strict=True):
        for number in range(last + 2, 13):
            record = dweller.records[number]
            assert "c" not in {*record.used, *record.stale, *record.missing}
        assert "c" not in dweller.names


def test_who_is_cut_off_learns_of_a_revocation_from_its_neighbours() -> None:
    valley, a, b = two_and_a_cut(rounds=120)
    c = valley.add("c")
    valley.play(300.0, until=lambda: bool(c.records))
    assert valley.play(valley.now_s + 30.0, until=lambda: "c" in b.names)
    valley.order(Revoke("c"))
    assert valley.play(valley.now_s + 30.0, until=lambda: "c" not in b.names)
    assert valley.play(400.0)
    assert ends([a, b]) == dict.fromkeys("ab", (0, "finished"))


def test_a_revoked_peer_that_is_cut_off_is_left_alone_by_its_neighbours() -> None:
    valley, a, b = two_and_a_cut()
    valley.order(Revoke("b"))
    at_a, at_b = max(a.records), max(b.records)
    assert valley.play(2000.0)
    assert ends([a]) == {"a": (0, "finished")}
    assert not any("b" in a.records[n].used for n in range(at_a + 2, 61))
    assert not any(b.records[n].used for n in range(at_b + 2, max(b.records) + 1))


def passed_to(dweller: Dweller, signed: SignedView) -> None:
    dweller.feed(dweller.node.link_said(_other(dweller), PEER.encode(signed), dweller.ways.now_s))


def _other(dweller: Dweller) -> PeerId:
    return next(iter(dweller.node._links))


def next_view(dweller: Dweller, **changes: object) -> View:
    view = dweller.node.view
    assert view is not None
    newer = replace(view, epoch=replace(view.epoch, counter=view.epoch.counter + 1))
    return replace(newer, **changes)  # type: ignore[arg-type]


def test_a_view_that_the_coordinator_did_not_sign_is_a_breach() -> None:
    _, _, b = two_and_a_cut()
    before = b.node.view
    passed_to(b, seal_view(next_view(b, members=()), b"x" * 32))
    assert b.node.view == before
    assert not b.node._links[_other(b)].is_up


def test_a_view_of_another_run_is_a_breach() -> None:
    _, _, b = two_and_a_cut()
    before = b.node.view
    passed_to(b, seal_view(next_view(b, run=b"x" * 16), SECRET))
    assert b.node.view == before
    assert not b.node._links[_other(b)].is_up


def test_an_older_view_changes_nothing_and_is_no_breach() -> None:
    _, _, b = two_and_a_cut()
    before = b.node.view
    assert before is not None
    old = replace(before, epoch=replace(before.epoch, counter=0), members=())
    passed_to(b, seal_view(old, SECRET))
    assert b.node.view == before
    assert b.node._links[_other(b)].is_up


def test_two_views_of_one_epoch_are_told_and_all_settle_on_the_same() -> None:
    valley, a, b = two_and_a_cut()
    one = next_view(a)
    other = replace(one, run_name="valleys")
    signed = [seal_view(view, SECRET) for view in (one, other)]
    for dweller, order in ((a, signed), (b, signed[::-1])):
        for view in order:
            passed_to(dweller, view)
    told = [(None, f"two coordinators with one key: two views of epoch 1.{one.epoch.counter}")]
    assert a.heard("split-view") == b.heard("split-view") == told
    greater = max(signed, key=lambda view: view.body)
    assert a.node.view == b.node.view == open_view(greater, sign_public(SECRET)).view
    newer = replace(one, epoch=replace(one.epoch, counter=one.epoch.counter + 1))
    for dweller in (a, b):
        passed_to(dweller, seal_view(newer, SECRET))
    assert a.node.view == b.node.view == newer
    assert valley.play(400.0)
    assert ends([a, b]) == dict.fromkeys("ab", (0, "finished"))


def test_the_word_about_a_view_is_small_enough_for_a_listener() -> None:
    _, _, b = two_and_a_cut()
    assert b.node.view is not None
    most = Epoch(2**48, 2**48)
    assert len(PEER.encode(Seen(b.node.view.run, most))) < 64 < MAX_REQUEST_BYTES

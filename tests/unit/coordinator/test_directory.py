"""Settling, the lobby, leases, and who is shown which view: a table of situations."""

import pytest

from coordinator.book import Entry
from coordinator.bulletin import Bulletin
from coordinator.changes import status_line
from coordinator.directory import Save
from protocol.ids import PeerId
from protocol.manifest import Manifest
from protocol.wire.messages import (
    MAX_MANIFEST_BYTES,
    MAX_MEMBERS,
    Epoch,
    Lease,
    Ready,
    Settle,
    SignedView,
)
from tests.unit.coordinator.town import (
    INIT,
    LEASE_S,
    SCHEMA,
    SIGN_SECRET,
    WHOLE,
    A,
    B,
    C,
    Node,
    Town,
    admission,
    answers,
    refusal,
    shown,
    woken_at_s,
)

# -- settling ------------------------------------------------------------------------------


def test_the_first_manifest_stands_and_everyone_who_waits_is_told() -> None:
    town = Town()
    town.join(A, B)
    effects = town.hear(A, Settle(WHOLE.options()))
    assert effects[0] == Save()
    for node in (A, B):
        admitted = admission(effects, node)
        assert admitted.settled
        assert admitted.options == WHOLE.options()


def test_a_later_manifest_is_answered_with_the_one_that_stands() -> None:
    town = Town()
    town.join(A, B)
    town.hear(A, Settle(WHOLE.options()))
    effects = town.hear(B, Settle(Manifest({"solver.lr": 9.0}).options()))
    assert admission(effects, B).options == WHOLE.options()
    assert answers(effects, A) == []


def test_a_manifest_is_laid_over_what_the_coordinator_pinned() -> None:
    town = Town(pinned=Manifest({"run.seed": 7, "solver.lr": 0.05}))
    town.join(A)
    effects = town.hear(A, Settle(WHOLE.options()))
    assert dict(Manifest.from_options(admission(effects, A).options)) == {
        "run.rounds": 3,
        "run.seed": 7,
        "solver.lr": 0.05,
    }


def test_a_manifest_against_a_pinned_line_is_refused_and_its_node_is_out() -> None:
    town = Town(pinned=Manifest({"solver.lr": 0.1}))
    town.join(A)
    effects = town.hear(A, Settle(WHOLE.options()))
    assert refusal(effects, A) == "solver.lr: you asked for 0.05, the run has 0.1"
    assert town.states() == {"a": "left"}
    assert not town.book.settled


def test_a_manifest_with_a_line_twice_is_refused() -> None:
    town = Town()
    town.join(A)
    effects = town.hear(A, Settle(WHOLE.options() * 2))
    assert refusal(effects, A) == "run.rounds stands twice"


def test_a_wish_that_a_settled_run_does_not_know_is_refused() -> None:
    town = Town()
    town.ready(A)
    node = B.but(wishes=Manifest({"mixer.gamma": 5.0}))
    assert refusal(town.hear(node, node.join()), node) == (
        "mixer.gamma: you asked for 5.0, the run has no such option"
    )


def test_a_wish_for_what_is_not_settled_yet_is_let_in() -> None:
    town = Town()
    node = A.but(wishes=Manifest({"mixer.gamma": 5.0}))
    assert not admission(town.hear(node, node.join()), node).settled


# -- the lobby -----------------------------------------------------------------------------


def test_a_node_is_ready_once_its_model_is_the_runs() -> None:
    town = Town()
    town.join(A)
    town.hear(A, Settle(WHOLE.options()))
    effects = town.hear(A, Ready(SCHEMA, INIT))
    assert effects[0] == Save()
    assert [(m.name, m.state) for m in shown(effects, A).members] == [("a", "ready")]


def test_the_first_digests_stand_and_another_is_refused_with_what_differs() -> None:
    town = Town()
    town.ready(A)
    town.join(B, C)
    assert refusal(town.hear(B, Ready(b"x" * 32, INIT)), B).startswith("schema: ")
    assert refusal(town.hear(C, Ready(SCHEMA, b"x" * 32)), C).startswith("init: ")
    assert town.states() == {"a": "ready", "b": "left", "c": "left"}


def test_ready_before_the_manifest_is_settled_is_dropped() -> None:
    town = Town()
    town.join(A)
    assert answers(town.hear(A, Ready(SCHEMA, INIT)), A) == []
    assert town.directory.dropped == {"out of place": 1}
    assert not town.book.schema


def test_ready_said_twice_is_answered_with_the_view() -> None:
    town = Town()
    town.ready(A)
    assert shown(town.hear(A, Ready(SCHEMA, INIT)), A).epoch == town.directory.epoch


def test_round_one_has_those_who_were_ready_when_the_lobby_filled() -> None:
    town = Town(founders=2)
    town.join(C)  # here, but not ready
    town.ready(B)
    assert town.founding() == []
    town.ready(A)
    assert town.founding() == ["a", "b"]


def test_round_ones_roster_never_changes() -> None:
    town = Town(founders=2)
    town.ready(A, B, C)
    town.leave(A)
    town.wait(LEASE_S)
    assert town.founding() == ["a", "b"]


def test_a_relay_does_not_count_for_the_lobby() -> None:
    town = Town(founders=2)
    town.ready(A, B.but(role="relay"))
    assert town.founding() == []


@pytest.mark.parametrize("end", ["ready", "leave", "lease"])
def test_the_lobby_waits_for_a_relay_that_is_still_building_its_model(end: str) -> None:
    town = Town(founders=2)
    relay = C.but(role="relay")
    town.join(relay)
    town.ready(A, B)
    assert town.founding() == []
    match end:
        case "ready":
            town.ready(relay)
        case "leave":
            town.leave(relay)
        case _:
            town.wait(LEASE_S / 2)
            town.renew(A)
            town.renew(B)
            assert town.founding() == []
            town.wait(LEASE_S / 2)
    assert town.founding() == ["a", "b"]


def test_a_run_that_is_to_begin_with_a_relay_waits_for_it_too() -> None:
    town = Town(founders=2, relays=1)
    town.ready(A, B)
    assert town.founding() == []
    assert status_line(town.directory.view) == "2 of 2 peers ready: a, b; waiting for a relay"
    town.join(C.but(role="relay"))  # here, but not ready
    assert town.founding() == []
    assert status_line(town.directory.view) == "2 of 2 peers ready: a, b; waiting for c"
    town.ready(C.but(role="relay"))
    assert town.founding() == ["a", "b"]


def test_a_peer_that_was_lost_in_the_lobby_counts_again_when_it_is_back() -> None:
    town = Town(founders=2)
    town.ready(A)
    town.wait(LEASE_S)
    town.ready(B)
    assert town.founding() == []
    town.renew(A)
    assert town.founding() == ["a", "b"]


# -- leases --------------------------------------------------------------------------------


def test_a_renewed_lease_runs_from_then() -> None:
    town = Town()
    assert woken_at_s(town.hear(A, A.join())) == LEASE_S
    town.now_s = 10.0
    effects = town.renew(A)
    assert answers(effects, A) == [Lease(LEASE_S, town.directory.epoch)]
    assert woken_at_s(effects) == 10.0 + LEASE_S


def test_a_lease_that_runs_out_makes_a_member_lost_and_everybody_is_told() -> None:
    town = Town()
    town.ready(A)
    town.now_s = 1.0
    town.ready(B)
    effects = town.wait(LEASE_S - 1.0)
    assert town.states() == {"a": "lost", "b": "ready"}
    assert shown(effects, B).epoch == town.directory.epoch
    assert Save() in effects


def test_a_lost_member_is_what_it_was_as_soon_as_it_speaks() -> None:
    town = Town()
    town.ready(A)
    town.wait(LEASE_S)
    town.renew(A)
    assert town.states() == {"a": "ready"}


def test_a_member_that_left_is_left_and_can_come_back() -> None:
    town = Town()
    town.ready(A)
    town.leave(A)
    assert town.states() == {"a": "left"}
    assert town.wait(10 * LEASE_S) == ()  # no lease, nothing to wait for
    town.join(A)
    assert town.states() == {"a": "ready"}


def test_after_a_restart_members_have_one_lease_to_say_that_they_are_there() -> None:
    before = Town()
    before.ready(A, B)
    after = Town(book=before.book)
    after.now_s = LEASE_S - 1.0
    after.join(A)
    after.wait(1.0)
    assert after.states() == {"a": "ready", "b": "lost"}


def test_after_a_restart_a_renew_is_not_answered_so_that_the_node_joins_again() -> None:
    before = Town()
    before.ready(A)
    after = Town(book=before.book)
    assert answers(after.renew(A), A) == []


# -- views ---------------------------------------------------------------------------------


def test_a_node_with_an_old_view_gets_the_new_one_with_its_lease() -> None:
    town = Town()
    town.ready(A)
    effects = town.renew(A, epoch=Epoch(1, 0))
    assert [type(m) for m in answers(effects, A)] == [Lease, SignedView]


def test_a_change_is_shown_at_once_to_all_but_the_one_who_has_seen_it() -> None:
    town = Town()
    town.join(A)
    town.now_s = 1.0
    effects = town.hear(B, B.join())
    assert [m.name for m in shown(effects, A).members] == ["a", "b"]
    assert [type(m).__name__ for m in answers(effects, B)] == ["Admitted"]


def test_changes_in_quick_succession_share_one_sending() -> None:
    town = Town()
    crowd = [Node(f"n{number}") for number in range(100)]
    town.join(*crowd)
    first = town.hear(A, A.join())
    due_s = woken_at_s(first)
    assert 0.0 < due_s < 0.2  # 100 copies of 100 members at 20 MB/s
    assert answers(first, crowd[0]) == []
    town.now_s = due_s / 2
    town.join(B)
    town.now_s = 0.0
    names = [m.name for m in shown(town.wait(due_s), crowd[0]).members]
    assert names[:2] == ["a", "b"]


def test_a_report_of_a_round_is_a_hint_and_changes_no_epoch() -> None:
    town = Town()
    town.ready(A)
    epoch = town.directory.epoch
    town.renew(A)
    assert town.member(A).round_no == 1
    assert town.directory.epoch == epoch


def test_reported_rounds_reach_the_journal_within_ten_seconds() -> None:
    town = Town()
    town.ready(A)
    assert Save() not in town.renew(A)
    town.now_s = 10.0
    assert Save() in town.renew(A)


def test_a_connection_that_is_gone_is_shown_nothing() -> None:
    town = Town()
    town.join(A)
    town.directory.gone(A.route)
    town.now_s = 1.0
    assert answers(town.hear(B, B.join()), A) == []


def test_the_largest_run_has_a_view_that_can_be_sent() -> None:
    entries = {}
    for number in range(MAX_MEMBERS):
        name = PeerId(f"{number:064}")
        entries[name] = Entry(
            name=name,
            role="relay",
            address="tcp://" + "h" * 122,
            curve_key=bytes(32),
            sign_key=bytes(32),
            instance=bytes(8),
            round_no=2**31,
        )
    town = Town(founders=MAX_MEMBERS)
    town.book.entries = entries
    town.book.founding = tuple(entries)
    body = Bulletin(town.book, sign_secret=SIGN_SECRET).sealed().body
    assert 700_000 < len(body) < MAX_MANIFEST_BYTES


# -- a process that comes back ---------------------------------------------------------------


def test_one_that_returns_to_a_run_is_lost_to_it_until_it_is_ready_again() -> None:
    """It stays on every roster: the others do not draw new neighbours for a restart."""
    town = Town()
    town.ready(A, B)
    again = A.but(instance=b"process2", route=b"other")
    town.join(again)
    assert town.states() == {"a": "lost", "b": "ready"}
    town.renew(again)
    assert town.states()["a"] == "lost"
    town.hear(again, Ready(SCHEMA, INIT))
    assert town.states() == {"a": "ready", "b": "ready"}


def test_one_that_returns_to_a_lobby_or_after_it_left_is_joining() -> None:
    town = Town(founders=3)
    town.ready(A, B)
    town.join(A.but(instance=b"process2", route=b"other"))
    assert town.states() == {"a": "joining", "b": "ready"}
    town.ready(A.but(instance=b"process3"), C)
    town.leave(B)
    town.join(B.but(instance=b"process2", route=b"again"))
    assert town.states()["b"] == "joining"

"""A coordinator whose journal is lost or old: members show it what it had signed."""

from dataclasses import replace

import pytest

from coordinator.book import Book
from coordinator.directory import Save
from coordinator.limits import Bounded
from coordinator.refusals import Offence
from protocol.ids import RunId
from protocol.manifest import Manifest
from protocol.wire.messages import (
    MAX_MEMBERS,
    VIEW_PART_BYTES,
    Admitted,
    CoordinatorMessage,
    Epoch,
    Member,
    NewToken,
    Ready,
    Refuse,
    Revoke,
    ShowView,
    SignedView,
    View,
    ViewPart,
)
from protocol.wire.signing import seal_view
from tests.unit.coordinator.town import (
    INIT,
    LEASE_S,
    RUN,
    SCHEMA,
    SIGN_SECRET,
    TOKEN,
    WHOLE,
    A,
    B,
    C,
    Node,
    Town,
    admission,
    answers,
    refusal,
)

BLANK = RunId(b"?" * 16)


def after_a_loss() -> Town:
    book = Book(run=BLANK, run_name="town", token=TOKEN, founders=2, incarnation=1, lost=True)
    return Town(book=book)


def a_run() -> tuple[Town, list[SignedView]]:
    """One with members a and b, then c joined, then b was revoked; the view at each of these."""
    town = Town()
    signed = []
    town.ready(A, B)
    signed.append(admission(town.hear(A, A.join()), A).view)
    town.ready(C)
    signed.append(admission(town.hear(A, A.join()), A).view)
    town.order(Revoke("b"))
    signed.append(admission(town.hear(A, A.join()), A).view)
    return town, signed


def show(town: Town, node: Node, signed: SignedView, epoch: Epoch) -> list[object]:
    """Join with this view, and show it when asked; all that is answered."""
    heard: list[object] = []
    said: list[CoordinatorMessage] = [replace(node.join(), seen=epoch)]
    while said:
        effects = town.hear(node, said.pop())
        for answer in answers(effects, node):
            heard.append(answer)
            if isinstance(answer, ShowView) and answer.offset < len(signed.body):
                chunk = signed.body[answer.offset : answer.offset + VIEW_PART_BYTES]
                part = ViewPart(answer.offset, len(signed.body), signed.signature, chunk)
                said.append(part)
            elif isinstance(answer, ShowView):
                said.append(replace(node.join(), seen=epoch))
    return heard


def epoch_of(town: Town, back: int) -> Epoch:
    counter = town.directory.epoch.counter
    return Epoch(1, counter - back)


def test_a_lost_journal_is_rebuilt_from_the_view_of_a_member() -> None:
    before, signed = a_run()
    town = after_a_loss()
    assert show(town, A, signed[-1], before.directory.epoch) == [
        ShowView(0),
        ShowView(len(signed[-1].body)),
    ]
    town.wait(LEASE_S)
    admitted = admission(town.hear(A, A.join()), A)
    assert (admitted.run, admitted.settled, admitted.options) == (RUN, True, WHOLE.options())
    book = town.book
    assert (book.schema, book.init, book.founders) == (SCHEMA, INIT, 2)
    assert town.founding() == ["a", "b"]
    assert book.incarnation == 2
    assert town.directory.epoch.incarnation == 2
    assert town.member(A).state == "ready"
    assert refusal(town.hear(B, B.join()), B).startswith("this key was revoked")


def test_nobody_new_is_let_in_and_nobody_is_refused_before() -> None:
    before, signed = a_run()
    town = after_a_loss()
    new = Node("new")
    assert answers(town.hear(new, new.join()), new) == []
    show(town, A, signed[-1], before.directory.epoch)
    town.now_s += 1.0
    assert answers(town.hear(new, new.join()), new) == []
    assert answers(town.hear(A, A.join()), A) == []
    town.wait(LEASE_S)
    admission(town.hear(new, new.join()), new)
    assert town.directory.dropped["too early"] == 4


def test_the_newest_of_the_views_that_are_shown_counts() -> None:
    before, signed = a_run()
    last = before.directory.epoch
    town = after_a_loss()
    show(town, C, signed[0], Epoch(1, 4))
    assert show(town, A, signed[-1], last)[0] == ShowView(0)
    assert show(town, C, signed[1], Epoch(1, last.counter - 1)) == []  # there is a newer one
    town.wait(LEASE_S)
    assert town.states() == {"a": "ready", "b": "revoked", "c": "ready"}


def test_a_revoked_member_with_an_old_view_is_found_out_by_one_with_a_newer() -> None:
    before, signed = a_run()
    town = after_a_loss()
    show(town, B, signed[0], Epoch(1, 4))
    town.wait(LEASE_S)
    admission(town.hear(B, B.join()), B)  # nobody knows better yet
    assert show(town, A, signed[-1], before.directory.epoch)[0] == ShowView(0)
    assert refusal(town.hear(B, B.join()), B).startswith("this key was revoked")


def test_what_this_start_has_learnt_stands_against_an_older_view() -> None:
    before, signed = a_run()
    town = after_a_loss()
    show(town, A, signed[0], Epoch(1, 4))
    town.wait(LEASE_S)
    moved = A.but(address="tcp://10.0.0.9:9999")
    admission(town.hear(moved, moved.join()), moved)
    show(town, C, signed[-1], before.directory.epoch)
    assert town.member(A).address == "tcp://10.0.0.9:9999"


def test_members_that_do_not_come_back_are_lost_after_a_lease() -> None:
    before, signed = a_run()
    town = after_a_loss()
    show(town, A, signed[-1], before.directory.epoch)
    town.wait(LEASE_S)
    assert town.states() == {"a": "ready", "b": "revoked", "c": "ready"}
    town.wait(LEASE_S)
    assert town.states() == {"a": "lost", "b": "revoked", "c": "lost"}


@pytest.mark.parametrize("secret", [b"x" * 32, bytes(32)])
def test_a_view_that_this_coordinator_did_not_sign_rebuilds_nothing(secret: bytes) -> None:
    town = after_a_loss()
    view = View(RUN, "town", Epoch(9, 9), 1, (), ())
    assert show(town, A, seal_view(view, secret), Epoch(9, 9)) == [ShowView(0)]
    assert town.book.lost
    assert town.book.run == BLANK
    assert town.directory.dropped == {"garbage": 1}


def test_parts_out_of_order_end_the_showing() -> None:
    _, signed = a_run()
    town = after_a_loss()
    total = len(signed[0].body)
    town.hear(A, replace(A.join(), seen=Epoch(1, 4)))
    town.hear(A, ViewPart(7, total, signed[0].signature, signed[0].body[7:]))
    town.hear(A, ViewPart(0, total, signed[0].signature, signed[0].body))
    assert town.directory.dropped == {"garbage": 1, "out of place": 1}
    assert town.book.lost


def test_a_view_in_many_parts_is_taken_whatever_the_rate_of_a_key() -> None:
    members = tuple(
        Member(f"m{n:04}", "peer", "ready", "tcp://10.0.0.1:4000", n.to_bytes(32), bytes(32), 0)
        for n in range(MAX_MEMBERS)
    )
    view = View(RUN, "town", Epoch(1, 9), 1, (), members)
    signed = seal_view(view, SIGN_SECRET)
    assert len(signed.body) > 50 * VIEW_PART_BYTES
    town = after_a_loss()
    show(town, A, signed, Epoch(1, 9))
    assert len(town.book.entries) == MAX_MEMBERS
    assert town.directory.dropped["too often"] == 0


def test_orders_wait_until_the_book_is_whole() -> None:
    town = after_a_loss()
    for order in (Revoke("a"), NewToken(b"n" * 16, 0.0, 0)):
        assert town.order(order)[0].startswith("no: the journal is lost")


def test_a_key_shut_out_before_a_view_is_shown_does_not_write_a_book_without_members() -> None:
    before, signed = a_run()
    town = after_a_loss()
    stranger = B.but(name="x")
    assert town.directory.offended(Offence(stranger.key, "too much"), town.now_s) == ()
    assert list(town.book.refused) == [stranger.key]
    show(town, A, signed[-1], before.directory.epoch)
    assert Save() in town.wait(LEASE_S)  # with the members, once they are known
    assert sorted(town.book.entries) == ["a", "b", "c"]
    assert list(town.book.refused) == [stranger.key]


def test_an_older_journal_learns_what_a_member_has_seen_since() -> None:
    before, signed = a_run()
    old = Town()
    old.ready(A, B)
    old.book.incarnation += 2  # the one before a torn one
    again = Town(book=old.book)
    assert again.book.known == Epoch(1, 4)
    assert show(again, A, signed[-1], before.directory.epoch)[0] == ShowView(0)
    assert again.states() == {"a": "ready", "b": "revoked", "c": "ready"}
    assert isinstance(show(again, C, signed[1], Epoch(1, 5))[0], Admitted)


def test_two_that_lead_one_run_are_settled_by_the_higher_incarnation() -> None:
    twin = Town(book=Book(run=RUN, run_name="town", token=TOKEN, founders=2, incarnation=1))
    twin.ready(A)
    view = View(RUN, "town", Epoch(1, 50), 2, (), (B_MEMBER,))
    assert show(twin, B, seal_view(view, SIGN_SECRET), Epoch(1, 50))[0] == ShowView(0)
    assert twin.directory.epoch.incarnation == 2
    assert set(twin.states()) == {"a", "b"}


B_MEMBER = Member("b", "peer", "ready", "tcp://10.0.0.2:4000", B.key, B.key, 3)


def test_a_view_of_another_run_is_refused_by_one_that_has_begun() -> None:
    town = Town()
    town.ready(A)
    view = View(b"z" * 16, "other", Epoch(5, 5), 2, (), (B_MEMBER,))
    answer = show(town, B, seal_view(view, SIGN_SECRET), Epoch(5, 5))[-1]
    assert answer == Refuse("this coordinator leads another run now: town")


def test_who_claims_to_have_seen_more_and_shows_nothing_is_not_let_in() -> None:
    town = Town()
    effects = town.hear(A, replace(A.join(), seen=Epoch(7, 7)))
    assert answers(effects, A) == [ShowView(0)]
    assert town.states() == {}


def test_a_thousand_that_show_nothing_take_bounded_memory() -> None:
    town = Town()
    for number in range(1000):
        node = Node(f"n{number}")
        town.now_s += 0.1
        town.hear(node, replace(node.join(), seen=Epoch(7, 7)))
    assert isinstance(town.directory._showings, Bounded)
    assert len(town.directory._showings) == 32


def test_ready_peers_stay_ready_and_need_not_say_it_again() -> None:
    before, signed = a_run()
    town = after_a_loss()
    show(town, A, signed[-1], before.directory.epoch)
    town.wait(LEASE_S)
    town.hear(A, A.join())
    other = Ready(b"x" * 32, INIT)
    assert "schema: the shared tensors" in refusal(town.hear(A, other), A)
    assert town.book.options == Manifest(dict(WHOLE))

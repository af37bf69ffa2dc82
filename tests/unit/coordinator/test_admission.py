"""Who is let in, who is not, and what they are told."""

from dataclasses import replace

import pytest

from coordinator.directory import Save
from protocol.ids import PeerId
from protocol.manifest import Manifest
from protocol.wire.messages import MAX_MEMBERS, Leave, Option, Refuse, Renew, Settle
from protocol.wire.signing import open_view
from tests.unit.coordinator.town import (
    LEASE_S,
    RUN,
    SIGN_KEY,
    WHOLE,
    A,
    B,
    Node,
    Town,
    admission,
    answers,
    refusal,
)


def test_a_node_with_the_token_is_admitted_with_the_view() -> None:
    town = Town()
    effects = town.hear(A, A.join())
    assert effects[0] == Save()  # before any answer leaves
    admitted = admission(effects, A)
    assert (admitted.run, admitted.settled, admitted.lease_s) == (RUN, False, LEASE_S)
    view = open_view(admitted.view, SIGN_KEY).view
    assert [(m.name, m.state, m.curve_key) for m in view.members] == [("a", "joining", A.key)]


REFUSED = [
    (A.but(token=b"x" * 16), "the token is not this run's"),
    (A.but(version=2), "wire: you speak version 2, the run speaks 1"),
    (A.but(name="../a"), "name '../a' cannot be used"),
    (A.but(role="king"), "the role 'king' is unknown: peer or relay"),
    (A.but(address="10.0.0.1:4000"), "the address '10.0.0.1:4000' is not tcp://HOST:PORT"),
    (A.but(address="tcp://10.0.0.1:0"), "is not tcp://HOST:PORT"),
    (
        A.but(wishes=Manifest({"solver.lr": 0.1})),
        "solver.lr: you asked for 0.1, the run has 0.05",
    ),
]


@pytest.mark.parametrize(("node", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_a_node_that_does_not_fit_is_told_why_and_not_a_member(node: Node, reason: str) -> None:
    town = Town(pinned=Manifest({"solver.lr": 0.05}))
    assert reason in refusal(town.hear(node, node.join()), node)
    assert town.states() == {}
    assert town.directory.dropped == {"refused": 1}


def test_wishes_that_contradict_themselves_are_refused() -> None:
    town = Town()
    twice = (Option("solver.lr", 0.1), Option("solver.lr", 0.2))
    effects = town.hear(A, replace(A.join(), wishes=twice))
    assert refusal(effects, A) == "solver.lr stands twice"


def test_a_second_key_with_a_name_is_refused_whatever_the_first_one_does() -> None:
    town = Town()
    town.join(A)
    thief = A.but(key=b"k" * 32, route=b"other")
    assert "the name a is taken by a peer with another key" in refusal(
        town.hear(thief, thief.join()), thief
    )
    town.leave(A)
    assert "it is left" in refusal(town.hear(thief, thief.join()), thief)


def test_one_key_has_one_name() -> None:
    town = Town()
    town.join(A)
    double = A.but(name="b")
    assert "this key belongs to a" in refusal(town.hear(double, double.join()), double)


def test_a_name_keeps_its_role() -> None:
    town = Town()
    town.join(A)
    relay = A.but(role="relay")
    assert "the name a is that of a peer" in refusal(town.hear(relay, relay.join()), relay)


def test_a_restarted_process_takes_over_and_the_older_one_is_told_at_its_next_word() -> None:
    town = Town()
    town.ready(A)
    again = A.but(instance=b"process2", route=b"route2")
    admission(town.hear(again, again.join()), again)
    assert town.states() == {"a": "joining"}  # its model is yet to be built
    assert refusal(town.renew(A), A) == "another process has taken over the name a"


def test_a_superseded_process_cannot_take_the_name_back() -> None:
    town = Town()
    town.join(A)
    town.join(A.but(instance=b"process2", route=b"route2"))
    assert "another process has taken over" in refusal(town.hear(A, A.join()), A)


def test_the_same_process_on_a_new_connection_is_still_ready() -> None:
    town = Town()
    town.ready(A)
    epoch = town.directory.epoch
    moved = A.but(route=b"route2")
    assert admission(town.hear(moved, moved.join()), moved).settled
    assert town.states() == {"a": "ready"}
    assert town.directory.epoch == epoch  # nothing that others can see has changed


def test_words_left_over_from_a_cut_connection_of_the_same_process_are_dropped_unanswered() -> None:
    town = Town()
    town.ready(A)
    town.join(A.but(route=b"route2"))
    assert answers(town.renew(A), A) == []


def test_a_full_run_refuses_one_more() -> None:
    town = Town()
    town.join(A)
    entry = town.book.entries.popitem()[1]
    for number in range(MAX_MEMBERS):
        town.book.entries[PeerId(f"n{number}")] = entry
    assert "the run is full" in refusal(town.hear(B, B.join()), B)


@pytest.mark.parametrize(
    "header", [b"", b"\x00", b"\xff" * 100, b"\x93\x20", bytes(4096)], ids=lambda h: h[:4].hex()
)
def test_garbage_is_counted_and_not_answered(header: bytes) -> None:
    town = Town()
    assert town.hear_bytes(A, header) == ()
    assert town.directory.dropped == {"garbage": 1}


def test_garbage_is_told_once_for_each_key(caplog: pytest.LogCaptureFixture) -> None:
    town = Town()
    for node in (A, A, B):
        town.hear_bytes(node, b"\x00")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_a_payload_is_dropped_with_its_message() -> None:
    town = Town()
    effects = town.directory.receive(A.route, A.key, b"", 0.0, has_payload=True)
    assert effects == ()
    assert town.directory.dropped == {"garbage": 1}


@pytest.mark.parametrize(
    "message", [Settle(WHOLE.options()), Renew(Town().directory.epoch, 0, "lobby"), Leave("bye")]
)
def test_what_is_no_join_is_dropped_before_the_join(message: Settle | Renew | Leave) -> None:
    town = Town()
    assert town.hear(A, message) == ()
    assert town.directory.dropped == {"not joined": 1}


def test_a_message_that_only_a_coordinator_says_is_dropped() -> None:
    town = Town()
    town.join(A)
    assert answers(town.hear(A, Refuse("no")), A) == []
    assert town.directory.dropped == {"out of place": 1}


def test_a_key_that_joins_too_often_is_answered_no_more_until_it_has_waited() -> None:
    town = Town()
    bad = A.but(token=b"x" * 16)
    answered = [bool(answers(town.hear(bad, bad.join()), bad)) for _ in range(20)]
    assert answered == [True] * 16 + [False] * 4
    town.wait(0.25)  # a quarter of a second at four a second
    assert refusal(town.hear(bad, bad.join()), bad)


def test_many_strangers_together_do_not_shut_a_member_out() -> None:
    town = Town()
    town.ready(A)
    crowd = [Node(f"n{number}", token=b"x" * 16) for number in range(300)]
    answered = [bool(answers(town.hear(node, node.join()), node)) for node in crowd]
    assert answered == [True] * 255 + [False] * 45  # 256 at once, and A was the first
    moved = A.but(route=b"route2")
    admission(town.hear(moved, moved.join()), moved)


def test_a_reason_is_cut_to_what_a_refusal_may_hold() -> None:
    long = {f"key{number:02}": "x" * 60 for number in range(20)}
    town = Town(pinned=Manifest(dict.fromkeys(long, "y")))
    node = A.but(wishes=Manifest(long))
    assert len(refusal(town.hear(node, node.join()), node)) == 400

"""What the operator orders of a directory: members shut out for good, tokens made and withdrawn."""

from pathlib import Path

import pytest

from coordinator.administration import MAX_TOKENS, carry_out
from coordinator.admission import REVOKED
from coordinator.directory import Save
from coordinator.journal import Journal
from coordinator.refusals import Offence, Refusal
from coordinator.tokens import Token
from protocol.errors import ConfigError
from protocol.wire.messages import Leave, Lift, NewToken, Renew, Revoke, Settle, Withdraw
from tests.unit.coordinator.town import (
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
    shown,
)

OTHER = b"o" * 16
FIRST = Token(secret=TOKEN).name


# -- revoking ----------------------------------------------------------------------------------


def test_a_revoked_member_is_told_at_once_and_so_are_all_others() -> None:
    town = Town()
    town.ready(A, B)
    town.wait(1.0)  # their views are out,
    town.wait(1.0)  # and the link is free again
    text, effects = town.order(Revoke("a"))
    assert text.startswith("a is revoked; it came in by the token")
    assert effects.index(Save()) < len(effects) - 1
    assert refusal(effects, A) == REVOKED
    assert [(m.name, m.state) for m in shown(effects, B).members] == [
        ("a", "revoked"),
        ("b", "ready"),
    ]


def test_a_revoked_key_comes_back_under_no_name_and_no_process() -> None:
    town = Town()
    town.ready(A, B)
    town.order(Revoke("a"))
    assert town.hear(A, Renew(town.directory.epoch, 1, "train"))[:-1] == ()  # its link is nothing
    for again in (A, A.but(instance=b"process2"), A.but(name="z")):
        assert refusal(town.hear(again, again.join()), again) == REVOKED
    assert town.states() == {"a": "revoked", "b": "ready"}


def test_a_name_stays_bound_to_the_key_that_was_revoked() -> None:
    town = Town()
    town.join(A)
    town.order(Revoke("a"))
    other = A.but(key=b"k" * 32, route=b"other")
    assert "taken by a peer with another key (it is revoked)" in refusal(
        town.hear(other, other.join()), other
    )


def test_a_revoked_member_is_refused_after_a_restart_too(tmp_path: Path) -> None:
    town = Town()
    town.ready(A, B)
    town.order(Revoke("a"))
    journal = Journal(tmp_path)
    journal.save(town.book)
    loaded = journal.load()
    assert loaded is not None
    again = Town(book=loaded.book)
    assert refusal(again.hear(A, A.join()), A) == REVOKED
    again.wait(1000.0)
    assert again.states() == {"a": "revoked", "b": "lost"}


def test_a_founder_that_is_revoked_does_not_count() -> None:
    town = Town(founders=2)
    town.ready(A)
    town.order(Revoke("a"))
    town.ready(B)
    assert town.founding() == []
    town.ready(C)
    assert town.founding() == ["b", "c"]


def test_revoking_twice_and_revoking_nobody_are_told() -> None:
    town = Town()
    town.join(A)
    town.order(Revoke("a"))
    assert town.order(Revoke("a"))[0].startswith("a was revoked before")
    assert town.order(Revoke("b"))[0].startswith("no: there is no member b in the run town")


def test_a_member_gives_no_orders() -> None:
    town = Town()
    town.ready(A, B)
    assert answers(town.hear(A, Revoke("b")), A) == []
    assert town.states() == {"a": "ready", "b": "ready"}
    assert town.directory.dropped == {"out of place": 1}


def test_a_stranger_gives_no_orders() -> None:
    town = Town()
    town.ready(A)
    for order in (Revoke("a"), NewToken(OTHER, 0.0, 0), Withdraw(FIRST), Lift("a")):
        assert answers(town.hear(C, order), C) == []
    assert town.states() == {"a": "ready"}
    assert [token.secret for token in town.book.tokens] == [TOKEN]


# -- tokens --------------------------------------------------------------------------------------


def test_a_token_for_two_lets_two_in_and_tells_the_third() -> None:
    town = Town()
    told, _ = town.order(NewToken(OTHER, 0.0, 2))
    name = Token(secret=OTHER).name
    assert told == f"token {name}: for ever, used 0 of 2"
    for node in (A, B):
        admission(town.hear(node, node.but(token=OTHER).join()), node)
    late = C.but(token=OTHER)
    why = f"the token {name} was good 2 times and is used up: ask for a new join string"
    assert refusal(town.hear(late, late.join()), late) == why


def test_who_is_in_comes_back_without_a_token_that_is_good() -> None:
    town = Town()
    town.order(NewToken(OTHER, 0.0, 1))
    a = A.but(token=OTHER)
    admission(town.hear(a, a.join()), a)
    admission(town.hear(a, a.join()), a)  # cut off and back
    again = a.but(instance=b"process2")
    admission(town.hear(again, again.join()), again)
    assert [token.used for token in town.book.tokens] == [0, 1]


def test_a_node_that_is_turned_away_uses_nothing_up() -> None:
    town = Town()
    town.order(NewToken(OTHER, 0.0, 1))
    wrong = A.but(token=OTHER, role="king")
    refusal(town.hear(wrong, wrong.join()), wrong)
    b = B.but(token=OTHER)
    admission(town.hear(b, b.join()), b)


def test_a_token_with_a_date_is_good_until_then() -> None:
    town = Town()
    town.order(NewToken(OTHER, town.since_1970_s + 60.0, 0))
    a, b = A.but(token=OTHER), B.but(token=OTHER)
    town.since_1970_s += 59.0
    admission(town.hear(a, a.join()), a)
    town.since_1970_s += 1.0
    name = Token(secret=OTHER).name
    assert refusal(town.hear(b, b.join()), b) == (
        f"the token {name} was good until 2027-01-15 08:01:00 UTC: ask for a new join string"
    )


def test_a_withdrawn_token_lets_nobody_in_and_sends_nobody_away() -> None:
    town = Town()
    town.join(A)
    told, _ = town.order(Withdraw(FIRST))
    assert told == f"token {FIRST} is withdrawn; members that came in by it stay: a"
    assert f"the token {FIRST} was withdrawn" in refusal(town.hear(B, B.join()), B)
    admission(town.hear(A, A.join()), A)


def test_used_tokens_are_kept_over_a_restart(tmp_path: Path) -> None:
    town = Town()
    town.order(NewToken(OTHER, 0.0, 1))
    town.join(A.but(token=OTHER))
    journal = Journal(tmp_path)
    journal.save(town.book)
    loaded = journal.load()
    assert loaded is not None
    again = Town(book=loaded.book)
    late = B.but(token=OTHER)
    assert "is used up" in refusal(again.hear(late, late.join()), late)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (NewToken(TOKEN, 0.0, 0), "there is such a token already"),
        (NewToken(OTHER, 1.0, 0), "the token would be over before it began"),
        (Withdraw("0badcafe"), "there is no token 0badcafe in the run town"),
    ],
    ids=["twice", "past", "unknown"],
)
def test_an_order_that_makes_no_sense_changes_nothing(order: NewToken | Withdraw, why: str) -> None:
    town = Town()
    before = [*town.book.tokens]
    assert town.order(order)[0].startswith(f"no: {why}")
    assert town.book.tokens == before


def test_tokens_that_are_over_make_room_and_others_do_not() -> None:
    book = Town().book
    for number in range(MAX_TOKENS - 1):
        carry_out(book, NewToken(number.to_bytes(16), 0.0, 0), 0.0)
    with pytest.raises(ConfigError, match=f"{MAX_TOKENS} tokens let nodes in, at most"):
        carry_out(book, NewToken(b"z" * 16, 0.0, 0), 0.0)
    over = book.tokens[7]
    carry_out(book, Withdraw(over.name), 0.0)
    carry_out(book, NewToken(b"z" * 16, 0.0, 0), 0.0)
    assert len(book.tokens) == MAX_TOKENS
    assert over not in book.tokens


def test_a_name_that_signs_with_another_key_is_refused() -> None:
    town = Town()
    town.join(A)
    changed = Node("a", key=A.key).join()
    forged = type(changed)(
        version=changed.version, token=changed.token, name="a", role="peer",
        instance=changed.instance, address=changed.address, sign_key=b"x" * 32, wishes=(),
    )  # fmt: skip
    assert "signs with another key" in refusal(town.hear(A, forged), A)


def test_a_member_that_left_can_be_revoked_and_one_that_settled_is_out_too() -> None:
    town = Town()
    town.join(A)
    town.hear(A, Settle(WHOLE.options()))
    town.hear(A, Leave("done"))
    town.order(Revoke("a"))
    assert refusal(town.hear(A, A.join()), A) == REVOKED


# -- hearing again whom the coordinator refuses for what it sent ---------------------------------


def test_lifting_says_whom_it_meant_and_what_it_does_not_know() -> None:
    town = Town()
    town.join(A, B)
    near = C.key[:8] + bytes(24)  # the first 16 digits of c's
    for key in (A.key, C.key, near):
        town.directory.offended(Offence(key, "too much"), town.now_s)
    for whose, why in (
        (
            "b",
            "no: no key of b is refused in the run town - a member's name or 8 digits of its k",
        ),
        ("nobody", "no: no key of nobody is refused in the run town"),
        (C.key.hex()[:7], f"no: no key of {C.key.hex()[:7]} is refused"),
        (
            C.key.hex()[:16],
            f"no: {C.key.hex()[:16]} may mean 2 keys: a stranger (key {C.key.hex()[:16]}) and",
        ),
    ):
        text, effects = town.order(Lift(whose))
        assert text.startswith(why)
        assert Save() not in effects
    assert list(town.book.refused) == [A.key, C.key, near]
    text, effects = town.order(Lift("a"))
    assert text == f"a (key {A.key.hex()[:16]}) is heard again"
    assert Save() in effects
    text, _ = town.order(Lift(C.key.hex().upper()))
    assert text == f"a stranger (key {C.key.hex()[:16]}) is heard again"
    assert list(town.book.refused) == [near]


def test_a_name_that_reads_like_anothers_key_lifts_neither_unasked() -> None:
    town = Town()
    like = A.but(name=C.key.hex()[:16])  # a member may call itself so
    town.join(like)
    town.directory.offended(Offence(C.key, "too much"), town.now_s)
    assert town.order(Lift(like.name))[0] == f"a stranger (key {C.key.hex()[:16]}) is heard again"
    for key in (C.key, like.key):
        town.directory.offended(Offence(key, "too much"), town.now_s)
    text, effects = town.order(Lift(like.name))
    assert text.startswith(f"no: {like.name} may mean 2 keys: a stranger (key {like.name}) and ")
    assert f"{like.name} (key {like.key.hex()[:16]})" in text
    assert Save() not in effects
    assert town.order(Lift(like.key.hex()))[0].endswith("is heard again")
    assert list(town.book.refused) == [C.key]


def test_a_revoked_member_whose_key_is_heard_again_stays_revoked_and_that_is_told() -> None:
    town = Town()
    town.ready(A)
    town.directory.offended(Offence(A.key, "too much"), town.now_s)
    town.order(Revoke("a"))
    told = f"a (key {A.key.hex()[:16]}) is heard again; as a member a stays revoked"
    assert town.order(Lift("a"))[0] == told
    assert refusal(town.hear(A, A.join()), A) == REVOKED


def test_a_key_that_offends_twice_is_refused_since_the_first_time() -> None:
    town = Town()
    for _ in range(2):
        assert Save() in town.directory.offended(Offence(C.key, "too much"), town.now_s)
        town.since_1970_s += 60.0
    assert town.book.refused == {C.key: Refusal(C.key, "too much", 1.8e9)}

"""What its operator may change in a run: who is out, and which tokens let nodes in.

Functions of the book, for a coordinator that runs and for one that does not. Each returns what it
did in words, or raises what the operator is told.
"""

import math
from collections.abc import Callable
from typing import TypeAlias, assert_never

from coordinator.book import Book
from coordinator.refusals import Offence, Refusal, remember
from coordinator.tokens import Token, token_with
from protocol.errors import ConfigError
from protocol.ids import PeerId
from protocol.wire.messages import Lift, NewToken, Revoke, Withdraw

__all__ = ["Order", "carry_out", "shut_out"]

Order: TypeAlias = Revoke | NewToken | Withdraw | Lift

MIN_DIGITS = 8  # of a key in hex, to mean it
MAX_TOKENS = 256  # of which at most this many let somebody in; those that do not are forgotten


def carry_out(book: Book, order: Order, since_1970_s: float) -> str:
    """Change the book as its operator wants it; what was done, in a line.

    Raises:
        ConfigError: it cannot be done; nothing has changed.
    """
    match order:
        case Revoke(name):
            return _revoke(book, name, since_1970_s)
        case NewToken():
            return _issue(book, order, since_1970_s)
        case Withdraw(name):
            return _withdraw(book, name)
        case Lift(whose):
            return _lift(book, whose)
        case _:
            assert_never(order)


def _revoke(book: Book, name: str, since_1970_s: float) -> str:
    entry = book.entries.get(PeerId(name))
    if entry is None:
        raise ConfigError(
            f"there is no member {name} in the run {book.run_name}",
            hint=f"there are: {', '.join(sorted(book.entries)) or 'none'}",
        )
    was_revoked, entry.revoked = entry.revoked, True
    done = f"{name} {'was revoked before' if was_revoked else 'is revoked'}"
    token = next((token for token in book.tokens if token.name == entry.token), None)
    if token is None or token.fault(since_1970_s):
        return done
    return (
        f"{done}; it came in by the token {token.name}, which still lets new keys in: "
        f"coordinator tokens withdraw {token.name}"
    )


def _issue(book: Book, order: NewToken, since_1970_s: float) -> str:
    if order.until_s and order.until_s <= since_1970_s:
        raise ConfigError("the token would be over before it began: --until lies in the past")
    if token_with(book.tokens, order.token) is not None:
        raise ConfigError("there is such a token already")
    if len(book.tokens) >= MAX_TOKENS:
        _forget_one(book, lambda token: token.fault(since_1970_s) is not None)
    token = Token(secret=order.token, until_s=order.until_s, uses=order.uses)
    book.tokens.append(token)
    return f"token {token.name}: {token.limits()}"


def _forget_one(book: Book, is_over: Callable[[Token], bool]) -> None:
    old = next((token for token in book.tokens if is_over(token)), None)
    if old is None:
        raise ConfigError(
            f"{len(book.tokens)} tokens let nodes in, at most {MAX_TOKENS} may",
            hint="withdraw one: coordinator tokens withdraw NAME",
        )
    book.tokens.remove(old)


def _withdraw(book: Book, name: str) -> str:
    token = next((token for token in book.tokens if token.name == name), None)
    if token is None:
        raise ConfigError(
            f"there is no token {name} in the run {book.run_name}",
            hint=f"there are: {', '.join(token.name for token in book.tokens) or 'none'}",
        )
    token.withdrawn = True
    came = [entry.name for entry in book.entries.values() if entry.token == name]
    who = f"; members that came in by it stay: {', '.join(sorted(came))}" if came else ""
    return f"token {name} is withdrawn{who}"


def _lift(book: Book, whose: str) -> str:
    entry = book.entries.get(PeerId(whose))
    digits = whose.lower() if len(whose) >= MIN_DIGITS else "-"
    # A member may have taken a name that reads like another one's key: both are meant then.
    meant = [
        key
        for key in book.refused
        if key.hex().startswith(digits) or (entry is not None and key == entry.curve_key)
    ]
    if not meant:
        raise ConfigError(
            f"no key of {whose} is refused in the run {book.run_name}",
            hint=f"a member's name or {MIN_DIGITS} digits of its key; coordinator refused lists "
            "them",
        )
    if len(meant) > 1:
        told = " and ".join(_told_key(book, key) for key in meant[:3])
        raise ConfigError(f"{whose} may mean {len(meant)} keys: {told}", hint="give more digits")
    (key,) = meant
    del book.refused[key]
    out = next((e for e in book.entries.values() if e.curve_key == key and e.revoked), None)
    stays = f"; as a member {out.name} stays revoked" if out is not None else ""
    return f"{_told_key(book, key)} is heard again{stays}"


def shut_out(book: Book, offence: Offence, since_1970_s: float) -> str:
    """Remember a key that the transport has shut out; what was done, in a line."""
    at_s = since_1970_s if math.isfinite(since_1970_s) else 0.0
    members = {entry.curve_key for entry in book.entries.values()}
    remember(book.refused, Refusal(offence.key, offence.reason, at_s), members)
    return f"{_told_key(book, offence.key)} is refused from now on: {offence.reason}"


def _told_key(book: Book, key: bytes) -> str:
    """For a person: whose key it is, and its first digits."""
    name = book.name_of(key)
    return f"{name or 'a stranger'} (key {key.hex()[:16]})"

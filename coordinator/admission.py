"""Whether a run takes a node: every reason to say no, each naming the line that differs.

Pure functions of the book and the message.
"""

import re

from coordinator.book import Book
from coordinator.tokens import token_with
from protocol.errors import ConfigError
from protocol.ids import PeerId, peer_id
from protocol.manifest import Manifest, conflicts, differences
from protocol.wire.messages import MAX_MEMBERS, WIRE_VERSION, Join

__all__ = ["REVOKED", "ROLES", "reason_against", "taken_over"]

REVOKED = "this key was revoked: the run goes on without it, under whatever name"

ROLES = ("peer", "relay")
_ADDRESS = re.compile(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[A-Za-z0-9._-]+):[1-9]\d{0,4}\Z")


def reason_against(book: Book, join: Join, key: bytes, since_1970_s: float) -> str | None:
    """Say why this node cannot be a member, or None when it can.

    Args:
        book: the run as it stands.
        join: what the node asks.
        key: its authenticated CURVE key.
        since_1970_s: for tokens that are good until a date.
    """
    if join.version != WIRE_VERSION:
        return f"wire: you speak version {join.version}, the run speaks {WIRE_VERSION}"
    return (
        _key(book, key)
        or _token(book, join, key, since_1970_s)
        or _form(join)
        or _name(book, join, key)
        or _instance(book, join)
        or _options(book, join)
        or _room(book, join)
    )


def _key(book: Book, key: bytes) -> str | None:
    is_out = any(entry.revoked and entry.curve_key == key for entry in book.entries.values())
    return REVOKED if is_out else None


def _token(book: Book, join: Join, key: bytes, since_1970_s: float) -> str | None:
    """A token is the right to come in; who is in needs none to come back."""
    entry = book.entries.get(PeerId(join.name))
    if entry is not None and entry.curve_key == key:
        return None
    token = token_with(book.tokens, join.token)
    if token is None:
        return "the token is not this run's: use the join string that its coordinator printed"
    fault = token.fault(since_1970_s)
    return f"{fault}: ask for a new join string" if fault else None


def _form(join: Join) -> str | None:
    try:
        peer_id(join.name)
    except ConfigError as error:
        return str(error)
    if join.role not in ROLES:
        return f"the role {join.role!r} is unknown: {' or '.join(ROLES)}"
    if not _ADDRESS.match(join.address):
        return f"the address {join.address!r} is not tcp://HOST:PORT"
    return None


def _name(book: Book, join: Join, key: bytes) -> str | None:
    entry = book.entries.get(PeerId(join.name))
    if entry is not None and entry.curve_key != key:
        return (
            f"the name {join.name} is taken by a peer with another key (it is {entry.state}): "
            "choose another with --name"
        )
    if entry is not None and entry.sign_key != join.sign_key:
        return f"the name {join.name} signs with another key: its key file was changed"
    if entry is not None and entry.role != join.role:
        return f"the name {join.name} is that of a {entry.role}: choose another with --name"
    bound = next((e.name for e in book.entries.values() if e.curve_key == key), join.name)
    if bound != join.name:
        return f"this key belongs to {bound} in this run, it cannot be {join.name} too"
    return None


def _instance(book: Book, join: Join) -> str | None:
    entry = book.entries.get(PeerId(join.name))
    if entry is not None and join.instance in entry.superseded:
        return taken_over(join.name)
    return None


def taken_over(name: str) -> str:
    return f"another process has taken over the name {name}"


def _options(book: Book, join: Join) -> str | None:
    try:
        wishes = Manifest.from_options(join.wishes)
    except ConfigError as error:
        return str(error)
    odd = differences(wishes, book.options) if book.settled else conflicts(wishes, book.options)
    return "; ".join(odd) or None


def _room(book: Book, join: Join) -> str | None:
    if join.name not in book.entries and len(book.entries) >= MAX_MEMBERS:
        return f"the run is full: {MAX_MEMBERS} members"
    return None

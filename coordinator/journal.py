"""The book on the disk: written whole, checked when read, with the last one before it kept.

One JSON file, replaced atomically. A torn one is told, and the one before it is used: an answer
that admits somebody leaves only after a save, so what is lost was never promised.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from coordinator.book import Book, Entry
from coordinator.refusals import Refusal
from coordinator.tokens import Token
from protocol.errors import KeyFileError, KinfolkError
from protocol.home import sync_folder, write_atomically
from protocol.ids import PeerId, RunId, peer_id
from protocol.jsontext import parse_json
from protocol.manifest import Manifest
from protocol.wire.codec import COORDINATOR, encode_document
from protocol.wire.messages import Epoch, NewToken

__all__ = ["Journal", "Loaded"]

MAX_STARTS = 1 << 40  # far beyond any run, far below what a message carries
_FORMAT = "kinfolk-journal-1"
# What reading a value as another type than it has may raise.
_SPOILT = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Loaded:
    book: Book
    torn: str = ""  # why the newest could not be read, when this is the one before it


class Journal:
    def __init__(self, folder: Path) -> None:
        self._newest = folder / "journal.json"
        self._previous = folder / "journal.previous.json"

    def load(self) -> Loaded | None:
        """Read the newest book that is whole, or None where none was ever written.

        Raises:
            KeyFileError: there is one, but neither it nor the one before it is whole.
        """
        faults: list[str] = []
        for path in (self._newest, self._previous):
            try:
                book = _decoded(path.read_bytes())
            except FileNotFoundError:
                continue
            except (*_SPOILT, KinfolkError) as error:
                faults.append(f"{path} is torn ({str(error) or type(error).__name__:.200})")
                continue
            if path == self._previous:
                # The newest may have been of the next start: never use its incarnation again.
                book.incarnation += 1
            return Loaded(book, faults[0] if faults else "")
        if faults:
            raise KeyFileError(
                "; ".join(faults), hint="start a new run with another --run, or restore the file"
            )
        return None

    def save(self, book: Book) -> None:
        """Write the book; when this returns it is on the disk.

        Raises:
            OSError: the disk is full or refuses; what was there stays readable.
        """
        beside = self._newest.with_suffix(".new")
        write_atomically(beside, _encoded(book))
        if self._newest.exists():
            self._newest.replace(self._previous)
        beside.replace(self._newest)
        sync_folder(self._newest.parent)


def _encoded(book: Book) -> bytes:
    body = {
        "run": book.run.hex(),
        "run_name": book.run_name,
        "token": book.token.hex(),
        "founders": book.founders,
        "relays": book.relays,
        "bind": book.bind,
        "advertise": book.advertise,
        "incarnation": book.incarnation,
        "options": dict(book.options),
        "settled": book.settled,
        "schema": book.schema.hex(),
        "init": book.init.hex(),
        "founding": list(book.founding),
        "told": [book.told.incarnation, book.told.counter],
        "known": [book.known.incarnation, book.known.counter],
        "entries": [_entry_fields(entry) for entry in book.entries.values()],
        "tokens": [_token_fields(token) for token in book.tokens],
        "refused": [_refusal_fields(refusal) for refusal in book.refused.values()],
    }
    text = {"format": _FORMAT, "checksum": _checksum(body), "book": body}
    return json.dumps(text, indent=1).encode() + b"\n"


def _entry_fields(entry: Entry) -> Mapping[str, object]:
    return {
        "name": entry.name,
        "role": entry.role,
        "address": entry.address,
        "curve_key": entry.curve_key.hex(),
        "sign_key": entry.sign_key.hex(),
        "instance": entry.instance.hex(),
        "superseded": [instance.hex() for instance in entry.superseded],
        "ready": entry.ready,
        "lost": entry.lost,
        "left": entry.left,
        "revoked": entry.revoked,
        "token": entry.token,
        "returning": entry.returning,
        "round_no": entry.round_no,
    }


def _token_fields(token: Token) -> Mapping[str, object]:
    return {
        "secret": token.secret.hex(),
        "until_s": token.until_s,
        "uses": token.uses,
        "used": token.used,
        "withdrawn": token.withdrawn,
    }


def _refusal_fields(refusal: Refusal) -> Mapping[str, object]:
    return {"key": refusal.key.hex(), "reason": refusal.reason, "at_s": refusal.at_s}


def _decoded(content: bytes) -> Book:
    text: Any = parse_json(content)
    if text["format"] != _FORMAT:
        raise ValueError(f"its format is {text['format']!r}, known is {_FORMAT!r}")
    body = text["book"]
    if _checksum(body) != text["checksum"]:
        raise ValueError("its checksum does not fit")
    entries = [_entry(fields) for fields in body["entries"]]
    refused = [_refusal(fields) for fields in body.get("refused", [])]
    book = Book(
        run=RunId(bytes.fromhex(body["run"])),
        run_name=body["run_name"],
        token=bytes.fromhex(body["token"]),
        founders=body["founders"],
        relays=body["relays"],
        bind=body["bind"],
        advertise=body["advertise"],
        incarnation=body["incarnation"],
        options=Manifest(body["options"]),
        settled=body["settled"],
        schema=bytes.fromhex(body["schema"]),
        init=bytes.fromhex(body["init"]),
        founding=tuple(PeerId(name) for name in body["founding"]),
        told=Epoch(*body["told"]),
        known=Epoch(*body["known"]),
        entries={entry.name: entry for entry in entries},
        tokens=[_token(fields) for fields in body["tokens"]],
        refused={refusal.key: refusal for refusal in refused},
    )
    _check(book)
    return book


def _check(book: Book) -> None:
    """Refuse values that the coordinator could not work with, though the checksum fits them.

    Raises:
        LocalProtocolError: one that members are shown, or a token, fits no message.
        ValueError: one of the others is not of its type.
    """
    encode_document(book.view(0))
    for token in book.tokens:
        COORDINATOR.encode(NewToken(token.secret, token.until_s, token.uses))
    entries = book.entries.values()
    epochs = (book.told.incarnation, book.told.counter, book.known.incarnation, book.known.counter)
    counts = [book.relays, *epochs, *(token.used for token in book.tokens)]
    texts = [book.bind, book.advertise, *(entry.token for entry in entries)]
    flags = [book.settled, *(token.withdrawn for token in book.tokens)]
    flags += [f for e in entries for f in (e.ready, e.lost, e.left, e.revoked, e.returning)]
    for kind, values in ((int, counts), (str, texts), (bool, flags)):
        for value in values:
            if type(value) is not kind:
                raise ValueError(f"{value!r:.60} stands where a {kind.__name__} is due")
    if min(counts) < 0:
        raise ValueError(f"{min(counts)} stands where 0 or more is due")
    if book.incarnation > MAX_STARTS:
        raise ValueError(f"{book.incarnation} starts, at most {MAX_STARTS} can be")


def _entry(fields: Mapping[str, Any]) -> Entry:
    return Entry(
        name=peer_id(fields["name"]),
        role=fields["role"],
        address=fields["address"],
        curve_key=bytes.fromhex(fields["curve_key"]),
        sign_key=bytes.fromhex(fields["sign_key"]),
        instance=bytes.fromhex(fields["instance"]),
        superseded=tuple(bytes.fromhex(instance) for instance in fields["superseded"]),
        ready=fields["ready"],
        lost=fields["lost"],
        left=fields["left"],
        revoked=fields["revoked"],
        token=fields["token"],
        returning=fields.get("returning", False),
        round_no=fields["round_no"],
    )


def _token(fields: Mapping[str, Any]) -> Token:
    return Token(
        secret=bytes.fromhex(fields["secret"]),
        until_s=fields["until_s"],
        uses=fields["uses"],
        used=fields["used"],
        withdrawn=fields["withdrawn"],
    )


def _refusal(fields: Mapping[str, Any]) -> Refusal:
    return Refusal(bytes.fromhex(fields["key"]), str(fields["reason"]), float(fields["at_s"]))


def _checksum(body: object) -> str:
    """Of the content, not of its layout: a person may look at the file with any tool."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return blake2b(canonical, digest_size=16).hexdigest()

"""Bytes to messages and back: the one place where bytes from the network become values.

A message is a msgpack array `[code, field, ...]`; a nested class is an array of its fields, a tuple
an array of its items. What may come next is decided by the type hints of the classes, never by the
bytes: depth and counts are checked before the parser sees them, so nothing is allocated by a length
that a message claims. Knows no socket, no clock, no tensor.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar, cast

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.wire.messages import (
    MAX_MANIFEST_BYTES,
    MAX_REQUEST_BYTES,
    Admitted,
    Ask,
    Bye,
    Cancel,
    CoordinatorMessage,
    Credit,
    Data,
    Done,
    DoneAck,
    Err,
    Get,
    Hello,
    Join,
    Lease,
    Leave,
    Lift,
    NewToken,
    NotYet,
    Offer,
    PeerMessage,
    Ready,
    Refuse,
    Renew,
    Revoke,
    Seen,
    Settle,
    ShowView,
    SignedView,
    SnapshotManifest,
    Told,
    View,
    ViewPart,
    Welcome,
    Withdraw,
)
from protocol.wire.shape import Bad, Cursor, pack, shape_of

__all__ = ["COORDINATOR", "DOCUMENTS", "PEER", "Codec", "decode_document", "encode_document"]

M = TypeVar("M")
D = TypeVar("D", SnapshotManifest, View)


class Codec(Generic[M]):
    """A closed set of frozen dataclasses, each with the number that stands for it on the wire."""

    def __init__(
        self,
        classes: Mapping[int, type[M]],
        *,
        max_bytes: int,
        tighter: Mapping[type[M], int] | None = None,
    ) -> None:
        """Compile a reader and a writer for each class.

        Args:
            classes: by code, in [0, 127].
            max_bytes: of an encoded message, checked before anything is parsed.
            tighter: lower limits for some of the classes.

        Raises:
            LocalProtocolError: a field has a type without a limit, or one that cannot be sent.
        """
        self._max_bytes = max_bytes
        self._limits = {cls: (tighter or {}).get(cls, max_bytes) for cls in classes.values()}
        self._codes = {cls: code for code, cls in classes.items()}
        self._shapes = {code: shape_of(cast("type", cls)) for code, cls in classes.items()}

    def __iter__(self) -> Iterator[type[M]]:
        return iter(self._codes)

    def encode(self, message: M) -> bytes:
        """Check and write one message.

        Raises:
            LocalProtocolError: it is not of this set, or a field is out of its bounds.
        """
        cls = type(message)
        code = self._codes.get(cls)
        if code is None:
            raise LocalProtocolError(f"{cls.__name__} is not a message of this conversation")
        try:
            fields = cast("list[object]", self._shapes[code].plain(message))
            data = pack([code, *fields])
        except (Bad, ValueError) as error:  # ValueError: a string with lone surrogates
            raise LocalProtocolError(f"cannot send {cls.__name__}: {error}") from error
        if len(data) > self._limits[cls]:
            raise LocalProtocolError(
                f"cannot send {cls.__name__}: {len(data)} bytes, at most {self._limits[cls]}"
            )
        return data

    def decode(self, data: bytes | memoryview) -> M:
        """Read and check one message.

        Raises:
            RemoteProtocolError: whatever is wrong with it.
        """
        if not 0 < len(data) <= self._max_bytes:
            raise RemoteProtocolError(
                f"message of {len(data)} bytes, must be in [1, {self._max_bytes}]"
            )
        name = "message"
        try:
            cursor = Cursor(data)
            count = cursor.array()
            code = cursor.scalar()
            shape = self._shapes.get(code) if type(code) is int else None
            if shape is None:
                raise Bad(f"unknown code {code!r:.40}")
            name = shape.name
            message = cast("M", shape.read(cursor, count - 1))
            cursor.end()
        except Bad as error:
            raise RemoteProtocolError(f"bad {name}: {error}") from error
        if len(data) > self._limits[type(message)]:
            raise RemoteProtocolError(
                f"bad {name}: {len(data)} bytes, at most {self._limits[type(message)]}"
            )
        return message


# The numbers are the wire: these tables may only grow. A number is never reused, and a class whose
# fields change gets a new number or a new WIRE_VERSION.

PEER: Final[Codec[PeerMessage]] = Codec(
    {
        1: Hello,
        2: Welcome,
        3: Refuse,
        4: Ask,
        5: NotYet,
        6: Offer,
        7: Get,
        8: Credit,
        9: Cancel,
        10: Data,
        11: Err,
        12: Done,
        13: DoneAck,
        14: Bye,
        15: Seen,
        38: SignedView,
    },
    max_bytes=MAX_MANIFEST_BYTES + 512,  # an Offer: its manifest and its step's share that
)

COORDINATOR: Final[Codec[CoordinatorMessage]] = Codec(
    {
        32: Join,
        33: Admitted,
        34: Settle,
        35: Ready,
        36: Renew,
        37: Lease,
        38: SignedView,
        39: Leave,
        40: Revoke,
        41: NewToken,
        42: Withdraw,
        43: Told,
        44: ShowView,
        45: ViewPart,
        46: Lift,
        3: Refuse,
    },
    max_bytes=MAX_MANIFEST_BYTES + 65536,  # an Admitted with the largest view and all options
    tighter=dict.fromkeys(
        (Join, Settle, Ready, Renew, Leave, Revoke, NewToken, Withdraw, Lift, ViewPart),
        MAX_REQUEST_BYTES,
    ),
)

DOCUMENTS: Final[Codec[SnapshotManifest | View]] = Codec(
    {64: SnapshotManifest, 65: View}, max_bytes=MAX_MANIFEST_BYTES
)


def encode_document(document: SnapshotManifest | View) -> bytes:
    """Write what is hashed or signed: always these very bytes are passed on.

    Raises:
        LocalProtocolError: a field is out of its bounds.
    """
    return DOCUMENTS.encode(document)


def decode_document(cls: type[D], data: bytes) -> D:
    """Read a document of the kind that is expected here.

    Raises:
        RemoteProtocolError: it is malformed, of another kind, or not written as we would write it:
            a document has one digest because it has one encoding.
    """
    document = DOCUMENTS.decode(data)
    if not isinstance(document, cls):
        raise RemoteProtocolError(f"a {type(document).__name__} in the place of a {cls.__name__}")
    if DOCUMENTS.encode(document) != data:
        raise RemoteProtocolError(f"a {cls.__name__} that is not in its shortest encoding")
    return document

"""Target `messages`: whatever bytes come, the codec makes a message of them or raises one error."""

from typing import Any

from peer.entries import ENTRIES
from peer.work import WORK
from protocol.errors import LayoutError, RemoteProtocolError
from protocol.wire.codec import COORDINATOR, DOCUMENTS, PEER, Codec, decode_document
from protocol.wire.layout import Layout, schema_digest
from protocol.wire.messages import Offer, SignedView, SnapshotManifest
from protocol.wire.signing import Purpose, open_view, sign, sign_public
from tests.fuzz.feed import Feed

CODECS: tuple[Codec[Any], ...] = (PEER, COORDINATOR, DOCUMENTS, ENTRIES, WORK)
SECRET = bytes(range(32))
PUBLIC = sign_public(SECRET)


def messages(data: bytes) -> None:
    """First byte: of which conversation. What decodes must be written and read back the same."""
    feed = Feed(data)
    codec = feed.pick(CODECS)
    try:
        message = codec.decode(feed.rest())
    except RemoteProtocolError:
        return
    assert codec.decode(codec.encode(message)) == message
    match message:
        case Offer():
            read_manifest(message.manifest)
        case SignedView():
            read_view(message)
        case SnapshotManifest():
            lay_out(message)
        case _:
            pass


def documents(data: bytes) -> None:
    """First byte: a manifest, or a view with the coordinator's signature over whatever it is."""
    feed = Feed(data)
    if feed.byte() % 2:
        read_manifest(feed.rest())
    else:
        body = feed.rest()
        read_view(SignedView(body, sign(SECRET, Purpose.VIEW, body)))


def read_manifest(encoded: bytes) -> None:
    try:
        manifest = decode_document(SnapshotManifest, encoded)
    except RemoteProtocolError:
        return
    assert DOCUMENTS.encode(manifest) == encoded  # one digest, because one encoding
    lay_out(manifest)


def read_view(signed: SignedView) -> None:
    try:
        opened = open_view(signed, PUBLIC)
    except RemoteProtocolError:
        return
    assert DOCUMENTS.encode(opened.view) == signed.body == opened.signed.body


def lay_out(manifest: SnapshotManifest) -> None:
    schema_digest(manifest.tensors)
    try:
        layout = Layout.of(manifest.tensors)
    except LayoutError:
        return
    ends = [place.end for place in layout.places]
    assert ends == sorted(ends)
    assert layout.body_bytes == (ends[-1] if ends else 0)

"""Who said it: Ed25519 signatures over documents. CURVE proves a link, this proves a paper.

A signature covers a purpose and the bytes, so that one made for a view is worth nothing elsewhere.
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from protocol.errors import RemoteProtocolError
from protocol.wire.codec import decode_document, encode_document
from protocol.wire.messages import SignedView, View

__all__ = [
    "OpenedView",
    "Purpose",
    "new_sign_secret",
    "open_view",
    "seal_view",
    "sign",
    "sign_public",
    "sign_snapshot",
    "signed_snapshot",
    "verify",
]


class Purpose(Enum):
    VIEW = b"kinfolk view 1\0"
    SNAPSHOT = b"kinfolk snapshot 1\0"


def new_sign_secret() -> bytes:
    """32 bytes, to be kept secret."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def sign_public(secret: bytes) -> bytes:
    """The 32 bytes that others verify with."""
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def sign(secret: bytes, purpose: Purpose, body: bytes) -> bytes:
    """64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(secret).sign(purpose.value + body)


def verify(public: bytes, purpose: Purpose, body: bytes, signature: bytes) -> bool:
    """Tell whether the holder of `public` signed exactly this; False for a malformed key too."""
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signature, purpose.value + body)
    except (InvalidSignature, ValueError):
        return False
    return True


def sign_snapshot(secret: bytes, name: bytes) -> bytes:
    """Vouch for a snapshot: its name binds run, sender, part, round and every tensor.

    Args:
        secret: of the peer that the manifest calls its sender.
        name: digest of the encoded manifest, 32 bytes.
    """
    return sign(secret, Purpose.SNAPSHOT, name)


def signed_snapshot(public: bytes, name: bytes, signature: bytes) -> bool:
    """Tell whether the peer with this key vouches for it, whoever handed it over."""
    return verify(public, Purpose.SNAPSHOT, name, signature)


def seal_view(view: View, secret: bytes) -> SignedView:
    """Sign a view as the coordinator."""
    body = encode_document(view)
    return SignedView(body, sign(secret, Purpose.VIEW, body))


@dataclass(frozen=True, slots=True)
class OpenedView:
    """A view that was believed."""

    view: View
    signed: SignedView  # the same, to be passed on


def open_view(signed: SignedView, public: bytes) -> OpenedView:
    """Read a view if the holder of `public` signed it.

    The same view reaches a node by several ways, and many nodes of a simulation: it is read once,
    and all are given the same two objects, however many copies came.

    Raises:
        RemoteProtocolError: the signature does not fit, or the view is malformed.
    """
    return _open_view(signed, public)


@lru_cache(maxsize=4)
def _open_view(signed: SignedView, public: bytes) -> OpenedView:
    if not verify(public, Purpose.VIEW, signed.body, signed.signature):
        raise RemoteProtocolError("the view is not signed by the run's coordinator")
    return OpenedView(decode_document(View, signed.body), signed)

"""Who said it: Ed25519 signatures over documents. CURVE proves a link, this proves a paper.

A signature covers a purpose and the bytes, so that one made for a view is worth nothing elsewhere.
"""

from enum import Enum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["Purpose", "new_sign_secret", "sign", "sign_public", "verify"]


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

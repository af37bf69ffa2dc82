"""A node's identity: its CURVE key pair for links and its Ed25519 key pair for signatures.

Made on first use, kept in one file of mode 0600, used by one process at a time. Knows no ZeroMQ:
an X25519 key pair is a CURVE key pair, byte for byte.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocol.errors import KeyFileError
from protocol.home import locked, private_folder, read_private, write_private
from protocol.jsontext import parse_json
from protocol.wire.signing import new_sign_secret, sign_public

__all__ = ["Identity", "held_identity", "load_identity", "new_identity"]

_FORMAT = "kinfolk-key-1"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """Four raw keys of 32 bytes each."""

    curve_public: bytes
    curve_secret: bytes = field(repr=False)
    sign_public: bytes
    sign_secret: bytes = field(repr=False)


def new_identity() -> Identity:
    return _identity(X25519PrivateKey.generate().private_bytes_raw(), new_sign_secret())


def _identity(curve_secret: bytes, sign_secret: bytes) -> Identity:
    curve = X25519PrivateKey.from_private_bytes(curve_secret)
    return Identity(
        curve_public=curve.public_key().public_bytes_raw(),
        curve_secret=curve_secret,
        sign_public=sign_public(sign_secret),
        sign_secret=sign_secret,
    )


def load_identity(path: Path) -> Identity:
    """Read an identity, making it first where there is none.

    Raises:
        KeyFileError: the file is open to others, torn, or of another format.
    """
    if not path.exists():
        identity = new_identity()
        write_private(path, _encoded(identity))
        return identity
    try:
        fields: Any = parse_json(read_private(path))
        if fields["format"] != _FORMAT:
            raise KeyFileError(f"{path} has format {fields['format']!r}, known is {_FORMAT!r}")
        return _identity(_key(fields["curve_secret"]), _key(fields["sign_secret"]))
    except (ValueError, KeyError, TypeError) as error:
        raise KeyFileError(
            f"the key file {path} is torn or not one of Kinfolk's",
            hint="restore it; or move it away for a new identity, which a run that knows the old "
            "one refuses under the same name",
        ) from error


@contextmanager
def held_identity(path: Path, *, what: str) -> Iterator[Identity]:
    """Load an identity and hold it, so that no second process uses it at the same time.

    Args:
        path: the key file, e.g. `home.keys / "shard3.key"`.
        what: who is locked, for the error: "a peer named shard3".

    Raises:
        ConfigError: another process holds it; the text has its host and process id.
        KeyFileError: the file cannot be trusted.
    """
    private_folder(path.parent)
    with locked(path.with_suffix(".lock"), what=what):
        yield load_identity(path)


def _encoded(identity: Identity) -> bytes:
    fields = {
        "format": _FORMAT,
        "curve_secret": base64.b64encode(identity.curve_secret).decode(),
        "sign_secret": base64.b64encode(identity.sign_secret).decode(),
    }
    return json.dumps(fields, indent=1).encode() + b"\n"


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    if len(key) != _KEY_BYTES:
        raise ValueError(f"a key has {_KEY_BYTES} bytes, not {len(key)}")
    return key

"""The join string: one word with all that a node needs to find and trust its coordinator.

    kinfolk1:HOST:PORT:BASE64URL(curve key 32, signing key 32, token 16, checksum 4)

It holds no character that a shell would touch, so it can be pasted without quotes: an IPv6 host
stands bare, and the port is what follows the last colon but one. It holds the token, so whoever
has it may join: it is kept in files of mode 0600.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from hashlib import blake2b

from protocol.errors import ConfigError

__all__ = ["JoinString"]

_PREFIX = "kinfolk1"
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,100}\Z")
_KEY_BYTES = 32
_TOKEN_BYTES = 16
_SUM_BYTES = 4
_BLOB_BYTES = 2 * _KEY_BYTES + _TOKEN_BYTES + _SUM_BYTES  # a multiple of 3: base64 has no padding
_BLOB_CHARS = _BLOB_BYTES // 3 * 4
_COPY = "copy the whole line that 'coordinator start' printed"


@dataclass(frozen=True, slots=True)
class JoinString:
    host: str  # a name or address, IPv6 without brackets
    port: int  # in [1, 65535]
    curve_key: bytes  # the coordinator's, 32 bytes: who answers there
    sign_key: bytes  # the coordinator's Ed25519 key, 32 bytes: who signs the view
    token: bytes = field(repr=False)  # 16 bytes: the right to join

    def __post_init__(self) -> None:
        if not _HOST.match(self.host):
            raise ConfigError(
                f"the host {self.host!r} cannot stand in a join string: "
                "letters, digits, '.', '_', '-', ':', '%', at most 100"
            )
        if not 1 <= self.port <= 65535:
            raise ConfigError(f"the port must be in [1, 65535], got {self.port}")
        sizes = (len(self.curve_key), len(self.sign_key), len(self.token))
        if sizes != (_KEY_BYTES, _KEY_BYTES, _TOKEN_BYTES):
            raise ConfigError(f"keys and token must have 32, 32 and 16 bytes, got {sizes}")

    @property
    def address(self) -> str:
        """As a transport takes it: tcp://HOST:PORT."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    def __str__(self) -> str:
        secret = self.curve_key + self.sign_key + self.token
        blob = secret + _checksum(self.host, self.port, secret)
        return f"{_PREFIX}:{self.host}:{self.port}:{base64.urlsafe_b64encode(blob).decode()}"

    @classmethod
    def parse(cls, text: str) -> "JoinString":
        """Read one back.

        Raises:
            ConfigError: it is not a join string, of another version, or torn.
        """
        word = text.strip()
        version, _, rest = word.partition(":")
        if version != _PREFIX:
            raise ConfigError(_not_ours(word), hint=_COPY)
        host_port, _, encoded = rest.rpartition(":")
        host, _, port = host_port.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (host and port.isascii() and port.isdigit() and len(port) <= 5):
            raise ConfigError("the join string is torn: it ends too early", hint=_COPY)
        blob = _decode(encoded)
        secret, checksum = blob[:-_SUM_BYTES], blob[-_SUM_BYTES:]
        if checksum != _checksum(host, int(port), secret):
            raise ConfigError(
                "the join string is torn: the checksum does not fit, some of it was changed",
                hint=_COPY,
            )
        return cls(
            host=host,
            port=int(port),
            curve_key=secret[:_KEY_BYTES],
            sign_key=secret[_KEY_BYTES : 2 * _KEY_BYTES],
            token=secret[2 * _KEY_BYTES :],
        )


def _not_ours(word: str) -> str:
    if re.match(r"kinfolk\d+:", word):
        return f"the join string is of another version: {word.partition(':')[0]}, not {_PREFIX}"
    shown = f"{word[:24]}..." if len(word) > 24 else word
    return f"{shown!r} is not a join string: one starts with {_PREFIX}:"


def _decode(encoded: str) -> bytes:
    if len(encoded) != _BLOB_CHARS:
        fault = "part of it is missing" if len(encoded) < _BLOB_CHARS else "it is too long"
        raise ConfigError(
            f"the join string is torn: {fault} "
            f"({len(encoded)} of {_BLOB_CHARS} characters after the last colon)",
            hint=_COPY,
        )
    try:
        return base64.b64decode(encoded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(
            "the join string is torn: it has characters that do not belong there", hint=_COPY
        ) from error


def _checksum(host: str, port: int, secret: bytes) -> bytes:
    return blake2b(f"{host}:{port}:".encode() + secret, digest_size=_SUM_BYTES).digest()

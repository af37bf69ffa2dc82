"""How a socket knows who is at the other end: CURVE, and what benchmarks put in its place.

`Clear` exists so that the cost of encryption can be told apart from that of the transfer. It sends
the key as a name without proof, so it refuses every address but loopback; no command makes one.
"""

import ipaddress
from collections.abc import Mapping
from typing import Protocol, TypeAlias

import zmq

from protocol.errors import AddressError
from protocol.transport.addresses import parse_host_port

__all__ = ["Clear", "Curve", "Options", "Security"]

Options: TypeAlias = Mapping[int, int | bytes]


class Security(Protocol):
    @property
    def listener(self) -> Options:
        """Socket options of a listener."""

    def caller(self, server_key: bytes) -> Options:
        """Socket options of a caller that expects this key at the other end."""

    def key_of(self, mechanism: bytes, credentials: list[bytes]) -> bytes:
        """The raw 32-byte key that a handshake's credentials name.

        Raises:
            ValueError: they are not of this mechanism.
        """

    def check(self, address: str) -> None:
        """Whether this may be used at an address.

        Raises:
            AddressError: it may not.
        """


class Curve:
    """Encrypted and authenticated: https://rfc.zeromq.org/spec/26."""

    def __init__(self, public_key: bytes, secret_key: bytes) -> None:
        self._keys: Options = {zmq.CURVE_PUBLICKEY: public_key, zmq.CURVE_SECRETKEY: secret_key}

    @property
    def listener(self) -> Options:
        return {zmq.CURVE_SERVER: 1, **self._keys}

    def caller(self, server_key: bytes) -> Options:
        return {zmq.CURVE_SERVERKEY: server_key, **self._keys}

    def key_of(self, mechanism: bytes, credentials: list[bytes]) -> bytes:
        if mechanism != b"CURVE" or len(credentials) != 1:
            raise ValueError(f"a handshake by {mechanism!r}, not CURVE")
        return credentials[0]

    def check(self, address: str) -> None:
        """Any address will do."""


class Clear:
    """Neither encrypted nor proven, on loopback alone: for benchmarks."""

    def __init__(self, public_key: bytes) -> None:
        self._name = public_key.hex().encode()

    @property
    def listener(self) -> Options:
        return {zmq.PLAIN_SERVER: 1}

    def caller(self, server_key: bytes) -> Options:
        return {zmq.PLAIN_USERNAME: self._name, zmq.PLAIN_PASSWORD: b"-"}

    def key_of(self, mechanism: bytes, credentials: list[bytes]) -> bytes:
        if mechanism != b"PLAIN" or len(credentials) != 2:
            raise ValueError(f"a handshake by {mechanism!r}, not PLAIN")
        return bytes.fromhex(credentials[0].decode())

    def check(self, address: str) -> None:
        host = parse_host_port(address, default_port=0).host
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False  # a name may lead anywhere
        if not is_loopback:
            raise AddressError(
                f"{address} is not loopback, and this transport does not encrypt",
                hint="only benchmarks use it, at tcp://127.0.0.1:PORT",
            )

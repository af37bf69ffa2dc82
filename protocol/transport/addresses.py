"""Where a node binds and what it tells others: HOST:PORT, and the address that routes to them."""

import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from protocol.errors import AddressError

__all__ = [
    "HostPort",
    "default_host",
    "local_address_towards",
    "parse_host_port",
]

_TEST_NET = "192.0.2.1"  # RFC 5737: reserved for documentation, so nobody answers there
_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface
_SIOCGIFFLAGS = 0x8913
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_HOST = re.compile(r"[A-Za-z0-9._-]+\Z")


@dataclass(frozen=True, slots=True)
class HostPort:
    host: str  # IPv6 without brackets
    port: int  # in [0, 65535]; 0 lets the system choose

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        """As a transport takes it."""
        return f"tcp://{self}"

    @property
    def is_wildcard(self) -> bool:
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound


def parse_host_port(text: str, *, default_port: int) -> HostPort:
    """Read HOST, HOST:PORT, :PORT, [IPV6]:PORT or a bare IPv6, with or without tcp:// before it.

    An empty host or `*` is every IPv4 interface.

    Raises:
        AddressError: it is none of these.
    """
    rest = text.strip().removeprefix("tcp://")
    if _is_ipv6(rest):
        return HostPort(rest, default_port)
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(default_port)
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise AddressError(
            f"the address {text!r} has no usable port: a number in [0, 65535]",
            hint="for example 0.0.0.0:7733, or HOST:0 to let the system choose",
        )
    if host.startswith("[") and host.endswith("]") and _is_ipv6(host[1:-1]):
        return HostPort(host[1:-1], int(port))
    if host in {"", "*"}:
        host = "0.0.0.0"  # noqa: S104 - what the person asked for
    if not _HOST.match(host):
        raise AddressError(
            f"{text!r} is not an address", hint="HOST, HOST:PORT or [IPV6]:PORT, e.g. 10.0.0.5:7733"
        )
    return HostPort(host, int(port))


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def local_address_towards(host: str, port: int) -> str:
    """Say which address of this machine packets to `host` would leave from. Sends none.

    Raises:
        AddressError: the name is unknown, or no route leads there.
    """
    try:
        family, kind, proto, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise AddressError(
            f"there is no way from here to {host}: {error.strerror or error}",
            hint="check the network, or say --advertise ADDRESS",
        ) from error


def default_host() -> str:
    """Guess the address by which other hosts reach this one.

    The one that the default route leaves from; else the first interface that is up and not
    loopback (a network namespace has often no default route); else 127.0.0.1.
    """
    try:
        return local_address_towards(_TEST_NET, 9)
    except AddressError:
        return next(_interface_addresses(), "127.0.0.1")


def _interface_addresses() -> Iterator[str]:
    """IPv4 addresses of the interfaces that are up and not loopback, in the kernel's order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s24x", name.encode())  # struct ifreq
            try:
                flags = struct.unpack_from("H", fcntl.ioctl(probe, _SIOCGIFFLAGS, request), 16)[0]
                if not flags & _IFF_UP or flags & _IFF_LOOPBACK:
                    continue
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:  # no IPv4 address, or gone since it was listed
                continue
            yield socket.inet_ntoa(answer[20:24])  # sin_addr of the sockaddr_in at 16

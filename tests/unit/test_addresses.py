import pytest

from protocol.errors import AddressError
from protocol.transport.addresses import (
    HostPort,
    default_host,
    local_address_towards,
    parse_host_port,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.5", "10.0.0.5", 7733),
        ("10.0.0.5:0", "10.0.0.5", 0),
        ("tcp://lab.example.org:80", "lab.example.org", 80),
        (" localhost ", "localhost", 7733),
        (":80", "0.0.0.0", 80),  # noqa: S104 - text
        ("*:80", "0.0.0.0", 80),  # noqa: S104 - text
        ("*", "0.0.0.0", 7733),  # noqa: S104 - text
        ("[::1]:80", "::1", 80),
        ("[::1]", "::1", 7733),
        ("::1", "::1", 7733),
        ("fe80::1%eth0", "fe80::1%eth0", 7733),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, host: str, port: int) -> None:
    assert parse_host_port(text, default_port=7733) == HostPort(host, port)


@pytest.mark.parametrize("text", ["a:b", "a:70000", "a:-1", "a:", "[::1]:x", "a b:80", "[x]:80"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(AddressError):
        parse_host_port(text, default_port=7733)


def test_an_address_is_written_as_a_transport_takes_it() -> None:
    assert HostPort("10.0.0.5", 80).endpoint == "tcp://10.0.0.5:80"
    assert HostPort("::1", 80).endpoint == "tcp://[::1]:80"


def test_the_way_to_this_machine_leaves_from_this_machine() -> None:
    assert local_address_towards("127.0.0.1", 80) == "127.0.0.1"


def test_a_host_that_no_route_leads_to_is_told() -> None:
    with pytest.raises(AddressError, match="there is no way from here to 255"):
        local_address_towards("255.255.255.255", 80)  # broadcast: refused without being sent


def test_some_address_is_always_found() -> None:
    assert default_host().count(".") == 3

"""Where a peer listens when nobody says where, and what it tells the others."""

import pytest

from peer.start import ANY_IPV4, ANY_IPV6, _advertised, _bind
from protocol.errors import ConfigError
from protocol.joinstring import JoinString
from protocol.transport.addresses import HostPort


def coordinator_at(host: str) -> JoinString:
    return JoinString(host, 7733, bytes(32), bytes(32), bytes(16))


@pytest.mark.parametrize(("host", "bind"), [("127.0.0.1", ANY_IPV4), ("::1", ANY_IPV6)])
def test_it_listens_by_the_protocol_of_its_coordinator(host: str, bind: HostPort) -> None:
    assert _bind(None, coordinator_at(host)) == bind


def test_what_is_typed_is_bound() -> None:
    assert _bind("127.0.0.1:7000", coordinator_at("::1")) == HostPort("127.0.0.1", 7000)


def test_a_coordinator_to_which_no_way_leads_is_found_missing_later() -> None:
    assert _bind(None, coordinator_at("no.such.host.invalid")) == ANY_IPV4


@pytest.mark.parametrize(
    ("typed", "bind", "told"),
    [
        (None, ANY_IPV4, "tcp://127.0.0.1:4000"),
        (None, HostPort("127.0.0.2", 0), "tcp://127.0.0.2:4000"),
        ("10.0.0.5", ANY_IPV4, "tcp://10.0.0.5:4000"),
        ("10.0.0.5:9000", ANY_IPV4, "tcp://10.0.0.5:9000"),  # a port that somebody forwards
    ],
)
def test_the_others_are_told_where_it_is_reached(
    typed: str | None, bind: HostPort, told: str
) -> None:
    bound = HostPort(bind.host, 4000).endpoint
    assert _advertised(typed, bind, bound, coordinator_at("127.0.0.1")) == told


def test_an_address_that_is_every_address_cannot_be_told() -> None:
    with pytest.raises(ConfigError, match="not an address that others can reach"):
        _advertised("0.0.0.0", ANY_IPV4, "tcp://0.0.0.0:4000", coordinator_at("127.0.0.1"))  # noqa: S104 - what is refused

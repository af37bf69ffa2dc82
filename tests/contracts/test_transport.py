"""Both transports keep the contract, under chaos too; ZeroMQ also what only a network can break."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from protocol.clock import MonotonicClock
from protocol.errors import AddressError
from protocol.transport.base import CallerEvent, Transport
from protocol.transport.chaos import Chaos
from protocol.transport.keys import new_identity
from protocol.transport.memory import MemoryNetwork, MemoryTransport
from protocol.transport.security import Clear
from protocol.transport.ways import CALM, Way
from protocol.transport.zeromq import ZeroMq, raise_descriptor_limit
from tests.contracts.transport import WITHIN_S, Network, Pair, TransportContract


class InMemory:
    def __init__(self) -> None:
        self._network = MemoryNetwork()
        self.made: list[Transport] = []

    def node(self) -> tuple[Transport, bytes]:
        key = bytes(31) + bytes([10 + len(self.made)])
        self.made.append(MemoryTransport(self._network, key=key))
        return self.made[-1], key


class OverZeroMq:
    def __init__(self) -> None:
        self.made: list[ZeroMq] = []

    def node(self) -> tuple[Transport, bytes]:
        keys = new_identity()
        self.made.append(ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret))
        return self.made[-1], keys.curve_public


class TestMemory(TransportContract):
    @pytest.fixture
    def network(self) -> Iterator[Network]:
        network = InMemory()
        yield network
        for transport in network.made:
            transport.close()


class Calm:
    """No fault, ever."""

    def ways(self, key: bytes, now_s: float) -> tuple[Way, Way]:
        return CALM, CALM


class UnderChaos:
    """Either of them, in fair weather."""

    def __init__(self, inner: InMemory | OverZeroMq) -> None:
        self._inner = inner

    def node(self) -> tuple[Transport, bytes]:
        transport, key = self._inner.node()
        return Chaos(transport, Calm(), clock=MonotonicClock(), seed=key), key


class TestChaosOverMemory(TransportContract):
    @pytest.fixture
    def network(self) -> Iterator[Network]:
        network = InMemory()
        yield UnderChaos(network)
        for transport in network.made:
            transport.close()


class TestChaosOverZeroMq(TransportContract):
    @pytest.fixture
    def network(self) -> Iterator[Network]:
        network = OverZeroMq()
        yield UnderChaos(network)
        for transport in network.made:
            transport.close()


class TestZeroMq(TransportContract):
    @pytest.fixture
    def network(self) -> Iterator[OverZeroMq]:
        network = OverZeroMq()
        yield network
        for transport in network.made:
            transport.close()

    def test_a_stopped_authenticator_lets_nobody_in(self, network: OverZeroMq) -> None:
        first = Pair(network)
        first.connect()
        zap = network.made[0]._zap
        assert zap is not None
        zap.stop()
        stranger, _ = network.node()
        caller = stranger.call(first.listener.address, server_key=first.server_key)
        poller = stranger.poller()
        poller.add(caller)
        poller.poll(0.5)
        assert caller.receive() is not CallerEvent.CONNECTED
        assert not caller.send(b"hello")

    def test_garbage_on_the_port_is_hung_up_on_and_hurts_nobody(self, network: OverZeroMq) -> None:
        pair = Pair(network)
        host, port = pair.listener.address.removeprefix("tcp://").split(":")
        for junk in (b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 1000):
            with socket.create_connection((host, int(port)), WITHIN_S) as stranger:
                stranger.sendall(junk)
                with suppress(ConnectionResetError):  # one way of hanging up
                    while stranger.recv(4096):
                        pass
        pair.route()
        assert [arrival.header for arrival in pair.arrivals] == [b"hello"]

    def test_a_client_without_curve_is_refused(self, network: OverZeroMq) -> None:
        pair = Pair(network)
        context = zmq.Context()
        try:
            plain = context.socket(zmq.DEALER)
            monitor = plain.get_monitor_socket(
                zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
            )
            plain.connect(pair.listener.address)
            plain.send(b"hello")
            monitor.setsockopt(zmq.RCVTIMEO, int(WITHIN_S * 1000))
            event = recv_monitor_message(monitor)["event"]
        finally:
            context.destroy(linger=0)
        assert event == zmq.EVENT_DISCONNECTED
        pair.route()
        assert [arrival.header for arrival in pair.arrivals] == [b"hello"]


class OverClear(OverZeroMq):
    def node(self) -> tuple[Transport, bytes]:
        keys = new_identity()
        public, secret = keys.curve_public, keys.curve_secret
        clear = ZeroMq(public_key=public, secret_key=secret, security=Clear(public))
        self.made.append(clear)
        return clear, public


class TestClear(TransportContract):
    """Without encryption, for benchmarks: the same rules, nowhere but on loopback."""

    @pytest.fixture
    def network(self) -> Iterator[Network]:
        network = OverClear()
        yield network
        for transport in network.made:
            transport.close()

    # A listener proves nothing here: that is why it keeps to loopback.
    test_a_listener_with_another_key_than_expected_is_never_connected = None  # type: ignore[assignment]

    @pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://localhost:7733"])
    def test_no_other_address_will_do(self, network: OverClear, address: str) -> None:
        node, key = network.node()
        with pytest.raises(AddressError, match="is not loopback"):
            node.listen(address, admits=lambda _: True)
        with pytest.raises(AddressError, match="is not loopback"):
            node.call("tcp://192.0.2.1:7733", server_key=key)

    def test_no_command_can_ask_for_it(self) -> None:
        root = Path(__file__).parents[2]
        files = [f for p in ("peer", "coordinator", "protocol") for f in (root / p).rglob("*.py")]
        users = {str(f.relative_to(root)) for f in files if "Clear(" in f.read_text()}
        assert users == set()

    def test_curve_refuses_one_that_does_not_encrypt(self, network: OverClear) -> None:
        safe = OverZeroMq()
        try:
            node, key = safe.node()
            listener = node.listen("tcp://127.0.0.1:0", admits=lambda _: True)
            stranger, _ = network.node()
            caller = stranger.call(listener.address, server_key=key)
            poller = stranger.poller()
            poller.add(caller)
            while (event := caller.receive()) is None:
                assert poller.poll(WITHIN_S)
            assert event is CallerEvent.REFUSED
        finally:
            for transport in safe.made:
                transport.close()


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    assert raise_descriptor_limit() == raise_descriptor_limit() > 0

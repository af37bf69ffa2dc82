"""Both transports keep the contract; ZeroMQ also what only a network can break."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from protocol.transport.base import CallerEvent, Transport
from protocol.transport.keys import new_identity
from protocol.transport.memory import MemoryNetwork, MemoryTransport
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


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    assert raise_descriptor_limit() == raise_descriptor_limit() > 0

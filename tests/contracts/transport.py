"""What every transport must do: the contract of protocol/transport/base.py, as a class of tests.

A subclass gives `network`, which makes nodes that can reach each other.
"""

from collections.abc import Callable
from typing import Protocol

import pytest

from protocol.clock import MonotonicClock
from protocol.errors import AddressError, TransportClosedError
from protocol.transport.base import (
    Arrival,
    Caller,
    CallerEvent,
    Listener,
    Pollable,
    Sent,
    Transport,
)
from protocol.wire.messages import MAX_PIECE_BYTES, MAX_REQUEST_BYTES

WITHIN_S = 10.0  # a bound, not a wait: loopback takes milliseconds


class Network(Protocol):
    def node(self) -> tuple[Transport, bytes]:
        """A transport and the public key that it is known by."""


class Pair:
    """A listener and a caller in one thread, and all that they heard."""

    def __init__(
        self, network: Network, *, admits: Callable[[bytes], bool] = lambda _: True
    ) -> None:
        self.server, self.server_key = network.node()
        self.client, self.client_key = network.node()
        self.listener: Listener = self.server.listen("tcp://127.0.0.1:0", admits=admits)
        self.caller: Caller = self.client.call(self.listener.address, server_key=self.server_key)
        self.arrivals: list[Arrival] = []
        self.answers: list[bytes | tuple[bytes, int]] = []
        self.events: list[CallerEvent] = []
        self.buffer = bytearray(2 * MAX_PIECE_BYTES)
        self.place: slice | None = slice(0, 0)
        self._listening = self.server.poller()
        self._listening.add(self.listener)
        self._calling = self.client.poller()
        self._calling.add(self.caller)

    def until(self, is_so: Callable[[], bool]) -> None:
        clock = MonotonicClock()
        until_s = clock.now_s() + WITHIN_S
        while not is_so():
            assert clock.now_s() < until_s, (self.arrivals, self.answers, self.events)
            self.turn()

    def turn(self) -> None:
        if self._listening.poll(0.0):
            while (arrival := self.listener.receive()) is not None:
                self.arrivals.append(arrival)
        if self._calling.poll(0.005):
            while (answer := self.caller.receive(self._into)) is not None:
                if isinstance(answer, CallerEvent):
                    self.events.append(answer)
                else:
                    self.answers.append(answer)

    def connect(self) -> None:
        self.until(lambda: CallerEvent.CONNECTED in self.events)

    def route(self) -> bytes:
        self.connect()
        assert self.caller.send(b"hello")
        self.until(lambda: bool(self.arrivals))
        return self.arrivals[-1].route

    def _into(self, header: bytes) -> memoryview | None:
        return None if self.place is None else memoryview(self.buffer)[self.place]

    def restart(self, address: str) -> None:
        self.listener = self.server.listen(address, admits=lambda _: True)
        self._listening.add(self.listener)

    def stop(self) -> None:
        self._listening.discard(self.listener)
        self.listener.close()


class TransportContract:
    def test_frames_go_both_ways_with_the_sender_s_key(self, network: Network) -> None:
        pair = Pair(network)
        route = pair.route()
        assert pair.arrivals == [Arrival(route, pair.client_key, b"hello", None)]
        assert pair.listener.send(route, b"welcome") is Sent.YES
        pair.until(lambda: pair.answers == [b"welcome"])

    def test_messages_arrive_in_order(self, network: Network) -> None:
        pair = Pair(network)
        route = pair.route()
        for number in range(50):
            assert pair.listener.send(route, bytes([number])) is Sent.YES
        pair.until(lambda: len(pair.answers) == 50)
        assert pair.answers == [bytes([number]) for number in range(50)]

    def test_a_payload_lands_where_its_header_says(self, network: Network) -> None:
        pair = Pair(network)
        route = pair.route()
        piece = bytes(range(256)) * (MAX_PIECE_BYTES // 256)
        pair.place = slice(1000, 1000 + MAX_PIECE_BYTES)
        assert pair.listener.send(route, b"data", memoryview(piece)) is Sent.YES
        pair.until(lambda: pair.answers == [(b"data", MAX_PIECE_BYTES)])
        assert pair.buffer[1000 : 1000 + MAX_PIECE_BYTES] == piece
        assert not any(pair.buffer[:1000])
        assert not any(pair.buffer[1000 + MAX_PIECE_BYTES :])

    @pytest.mark.parametrize("room", [99, 101])
    def test_a_payload_that_does_not_fit_is_told(self, network: Network, room: int) -> None:
        pair = Pair(network)
        route = pair.route()
        pair.place = slice(0, room)
        pair.listener.send(route, b"data", memoryview(bytes(100)))
        pair.listener.send(route, b"next")
        pair.until(lambda: pair.answers == [(b"data", -1), b"next"])

    def test_an_unwanted_payload_is_dropped(self, network: Network) -> None:
        pair = Pair(network)
        route = pair.route()
        pair.place = None
        pair.listener.send(route, b"data", memoryview(b"\1" * 100))
        pair.listener.send(route, b"next")
        pair.until(lambda: pair.answers == [(b"data", 0), b"next"])
        assert not any(pair.buffer)

    def test_an_error_while_a_payload_is_placed_leaves_the_next_message_whole(
        self, network: Network
    ) -> None:
        def fail(header: bytes) -> memoryview | None:
            raise ValueError(header)

        pair = Pair(network)
        route = pair.route()
        pair.listener.send(route, b"data", memoryview(bytes(100)))
        pair.listener.send(route, b"next")
        pair._calling.poll(WITHIN_S)
        with pytest.raises(ValueError, match="data"):
            pair.caller.receive(fail)
        pair.until(lambda: pair.answers == [b"next"])

    def test_an_unknown_key_is_refused_and_admitted_later(self, network: Network) -> None:
        admitted: set[bytes] = set()
        pair = Pair(network, admits=admitted.__contains__)
        pair.until(lambda: CallerEvent.REFUSED in pair.events)
        assert not pair.caller.send(b"let me in")
        admitted.add(pair.client_key)
        pair.connect()
        pair.route()
        assert [arrival.header for arrival in pair.arrivals] == [b"hello"]

    def test_an_error_in_the_check_of_a_key_refuses_it(self, network: Network) -> None:
        def admits(key: bytes) -> bool:
            raise RuntimeError("the list is on fire")

        pair = Pair(network, admits=admits)
        pair.until(lambda: CallerEvent.REFUSED in pair.events)
        assert CallerEvent.CONNECTED not in pair.events

    def test_a_listener_with_another_key_than_expected_is_never_connected(
        self, network: Network
    ) -> None:
        pair = Pair(network)
        impostor, _ = network.node()
        caller = impostor.call(pair.listener.address, server_key=bytes(31) + b"\1")
        poller = impostor.poller()
        poller.add(caller)
        pair.connect()  # an honest caller beside it gets through meanwhile
        pair.route()
        poller.poll(0.2)
        assert caller.receive() is None
        assert not caller.send(b"hello")

    def test_nothing_is_queued_for_a_listener_that_is_not_there(self, network: Network) -> None:
        client, _ = network.node()
        caller = client.call("tcp://127.0.0.1:1", server_key=bytes(31) + b"\1")
        assert not caller.send(b"hello")

    def test_a_restarted_listener_is_found_again(self, network: Network) -> None:
        pair = Pair(network)
        pair.route()
        address = pair.listener.address
        pair.stop()
        pair.until(lambda: pair.events[-1] is CallerEvent.DISCONNECTED)
        pair.arrivals.clear()
        pair.restart(address)
        pair.until(lambda: pair.events[-1] is CallerEvent.CONNECTED)
        assert pair.caller.send(b"again")
        pair.until(lambda: [arrival.header for arrival in pair.arrivals] == [b"again"])

    def test_a_route_that_is_gone_is_told(self, network: Network) -> None:
        pair = Pair(network)
        route = pair.route()
        pair._calling.discard(pair.caller)
        pair.caller.close()
        pair.until(lambda: pair.listener.send(route, b"anyone?") is Sent.GONE)
        assert pair.listener.send(b"nobody", b"anyone?") is Sent.GONE

    def test_a_reader_that_never_reads_fills_its_own_pipe_only(self, network: Network) -> None:
        pair = Pair(network)
        route = pair.route()
        piece = memoryview(bytes(MAX_PIECE_BYTES))
        sent = [pair.listener.send(route, b"data", piece) for _ in range(400)]
        assert Sent.FULL in sent
        other = pair.client.call(pair.listener.address, server_key=pair.server_key)
        poller = pair.client.poller()
        poller.add(other)
        assert poller.poll(WITHIN_S)
        assert other.receive() is CallerEvent.CONNECTED
        assert other.send(b"hello")
        pair._listening.poll(WITHIN_S)
        arrival = pair.listener.receive()
        assert arrival is not None
        assert arrival.route != route
        assert pair.listener.send(arrival.route, b"welcome") is Sent.YES
        assert poller.poll(WITHIN_S)
        assert other.receive() == b"welcome"

    def test_a_frame_over_the_limit_ends_the_connection_and_is_not_delivered(
        self, network: Network
    ) -> None:
        pair = Pair(network)
        pair.route()
        pair.caller.send(bytes(MAX_REQUEST_BYTES + 200))
        pair.until(lambda: CallerEvent.DISCONNECTED in pair.events)
        assert [len(arrival.header) for arrival in pair.arrivals] == [5]

    def test_a_frame_of_the_limit_passes(self, network: Network) -> None:
        pair = Pair(network)
        pair.connect()
        assert pair.caller.send(bytes(MAX_REQUEST_BYTES))
        pair.until(lambda: len(pair.arrivals) == 1)
        assert len(pair.arrivals[0].header) == MAX_REQUEST_BYTES

    def test_a_wake_and_a_descriptor_end_a_poll(self, network: Network) -> None:
        node, _ = network.node()
        wake, other = node.wake(), node.wake()
        poller = node.poller()
        items: tuple[Pollable, ...] = (wake, other.fileno())  # type: ignore[attr-defined]  # both have one
        for item in items:
            poller.add(item)
        assert not poller.poll(0.0)
        wake.set()
        wake.set()
        assert list(poller.poll(WITHIN_S)) == [wake]
        wake.clear()
        assert not poller.poll(0.0)
        other.set()
        assert list(poller.poll(WITHIN_S)) == [items[1]]

    def test_an_address_in_use_is_the_operator_s_to_change(self, network: Network) -> None:
        pair = Pair(network)
        other, _ = network.node()
        with pytest.raises(AddressError, match="in use"):
            other.listen(pair.listener.address, admits=lambda _: True)

    @pytest.mark.parametrize("bind", ["127.0.0.1:0", "tcp://nowhere", "tcp://127.0.0.1:x"])
    def test_a_bind_that_is_no_address_is_the_operator_s_to_change(
        self, network: Network, bind: str
    ) -> None:
        node, _ = network.node()
        with pytest.raises(AddressError):
            node.listen(bind, admits=lambda _: True)

    def test_polling_after_the_end_is_refused(self, network: Network) -> None:
        pair = Pair(network)
        pair.client.close()
        with pytest.raises(TransportClosedError):
            pair._calling.poll(0.0)

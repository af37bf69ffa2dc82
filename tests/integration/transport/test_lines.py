"""What a listener does about connections that send no whole message, and how it cuts one."""

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from select import select

import psutil
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from protocol.clock import MonotonicClock
from protocol.transport import lines, zap, zeromq
from protocol.transport.base import Arrival, CallerEvent
from protocol.transport.keys import Identity, new_identity
from protocol.transport.security import Curve
from protocol.transport.zeromq import ZeroMq
from tests.integration.transport.flood import flooding

WITHIN_S = 30.0  # a bound, not a wait
MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("no_leaks")


class Server:
    """A listener that takes some keys, and what it was told of them."""

    def __init__(self, stack: ExitStack, *admitted: Identity) -> None:
        self.keys = new_identity()
        self.offences: list[tuple[bytes | None, str]] = []
        transport = transport_of(self.keys, stack)
        names = {identity.curve_public for identity in admitted}
        self.transport = transport
        self.listener = transport.listen(
            "tcp://127.0.0.1:0",
            admits=lambda key: key in names,
            offended=lambda key, reason: self.offences.append((key, reason)),
        )
        self.port = self.listener.address.rpartition(":")[2]
        self.arrivals: list[Arrival] = []
        self._poller = transport.poller()
        self._poller.add(self.listener)

    def until(self, is_so: Callable[[], bool]) -> None:
        clock = MonotonicClock()
        end_s = clock.now_s() + WITHIN_S
        while not is_so():
            assert clock.now_s() < end_s, (self.arrivals, self.offences)
            self._poller.poll(0.02)
            while (arrival := self.listener.receive()) is not None:
                self.arrivals.append(arrival)


def transport_of(keys: Identity, stack: ExitStack) -> ZeroMq:
    transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
    stack.callback(transport.close)
    return transport


def test_who_speaks_before_its_connection_is_told_of_can_be_cut() -> None:
    """libzmq tells of a connection from another thread than the one that reads it."""
    key = bytes(32)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, socket.socket() as there:
        known = lines.Lines(router, lambda _key, _reason: None)
        with known.monitor:
            port = router.bind_to_random_port("tcp://127.0.0.1")
            there.connect(("127.0.0.1", port))
            assert known.monitor.poll(int(WITHIN_S * 1000))
            fd = recv_monitor_message(known.monitor)["value"]  # as if it had not come yet
            assert known.heard(fd, key)
            known._accept(fd, 0.0)
            known.hang_up(key)
            there.settimeout(WITHIN_S)
            while there.recv(64):
                pass  # libzmq has greeted
            router.close(0)


# Of ZMTP 3.1: a client's greeting without security, its READY, and a frame that is not the last.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + (6).to_bytes(4) + b"DEALER"
MORE = b"\3" + (4096).to_bytes(8) + bytes(4096)


def received(known: lines.Lines) -> int:
    """What has come in on all connections."""
    return sum(lines._received_bytes(fd) or 0 for fd in known._lines)


def test_of_many_with_little_each_those_with_most_are_cut_and_nobody_is_banned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "MAX_ALL_UNFINISHED_BYTES", 100 * len(MORE))
    offences: list[tuple[bytes | None, str]] = []
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        router = stack.enter_context(context.socket(zmq.ROUTER))
        router.linger = 0
        known = lines.Lines(router, lambda key, reason: offences.append((key, reason)))
        stack.enter_context(known.monitor)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        there = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), WITHIN_S))
            for _ in range(4)
        ]
        for stranger, count in zip(there, (30, 60, 10, 40), strict=True):
            stranger.settimeout(WITHIN_S)
            stranger.sendall(GREETING)
            while b"ROUTER" not in stranger.recv(4096):
                pass
            stranger.sendall(bytes([4, len(READY)]) + READY + MORE * count)
        clock = MonotonicClock()
        end_s = clock.now_s() + WITHIN_S
        while known.follow(0.0) and received(known) < 140 * len(MORE):
            assert clock.now_s() < end_s
        known.check()
        cut = [select([stranger], [], [], 0)[0] != [] and is_cut(stranger) for stranger in there]
        known.check()
        assert len(known) == 2
        router.close(0)
    assert cut == [False, True, False, True]  # 140 are too many: 80 and then 40 are not
    assert offences == []
    assert known.admits(bytes(32))


class Told(lines.Lines):
    """Notes what it is asked to do, in order."""

    log: list[str]

    def follow(self, now_s: float) -> bool:
        self.log.append("follow")
        return super().follow(now_s)

    def check(self) -> None:
        self.log.append("check")
        super().check()


def test_connections_are_followed_before_a_key_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a first message could come before its connection is known, which then is not cut."""
    monkeypatch.setattr(zap, "CHECK_S", 0.0)  # look at every turn, last of all
    keys, caller = new_identity(), new_identity()
    with zmq.Context() as context, ExitStack() as stack:
        security = Curve(keys.curve_public, keys.curve_secret)
        answers = zap.Zap(context, key_of=security.key_of)
        stack.callback(answers.stop)
        router = stack.enter_context(context.socket(zmq.ROUTER))
        router.linger = 0
        for option, value in {**security.listener, zmq.ZAP_DOMAIN: b"door"}.items():
            router.setsockopt(option, value)
        told = Told(router, lambda _key, _reason: None)
        told.log = []
        before: list[str] = []

        def admits(_key: bytes) -> bool:
            before.append(told.log[-1])
            return len(told) == 1

        answers.add(b"door", admits, told)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        transport = transport_of(caller, stack)
        dealer = transport.call(f"tcp://127.0.0.1:{port}", server_key=keys.curve_public)
        poller = transport.poller()
        poller.add(dealer)
        assert poller.poll(WITHIN_S)
        assert dealer.receive() is CallerEvent.CONNECTED
    assert before == ["follow"]


def own_bytes() -> int:
    """What this process holds that is no file."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0]) * 1024


def test_who_sends_a_message_without_an_end_is_cut_and_refused_from_then_on() -> None:
    with ExitStack() as stack:
        member, other = new_identity(), new_identity()
        server = Server(stack, member, other)
        calm = transport_of(other, stack).call(
            server.listener.address, server_key=server.keys.curve_public
        )
        server.until(lambda: calm.receive() is CallerEvent.CONNECTED)
        calm.send(b"here")  # whose its connection is is known: no other handshake fits the flood's
        server.until(lambda: bool(server.arrivals))
        before = own_bytes()
        with flooding(int(server.port), server_key=server.keys.curve_public, keys=member):
            server.until(lambda: bool(server.offences))
            ((key, reason),) = server.offences
            assert key == member.curve_public
            assert "MiB of a message without an end, at most 16 are taken" in reason
            calm.send(b"still here")
            server.until(lambda: any(a.header == b"still here" for a in server.arrivals))
            again = transport_of(member, stack).call(
                server.listener.address, server_key=server.keys.curve_public
            )
            server.until(lambda: again.receive() is CallerEvent.REFUSED)
        assert own_bytes() - before < 200 * MIB  # of the 400 MB of one message
        assert len(server.offences) == 1


def test_a_member_that_is_hung_up_on_is_disconnected_at_once_and_others_are_not() -> None:
    with ExitStack() as stack:
        one, two = new_identity(), new_identity()
        server = Server(stack, one, two)
        callers = []
        for number, keys in enumerate((one, two)):
            transport = transport_of(keys, stack)
            address, key = server.listener.address, server.keys.curve_public
            caller = transport.call(address, server_key=key)
            server.until(lambda caller=caller: caller.receive() is CallerEvent.CONNECTED)  # type: ignore[misc]
            caller.send(bytes([number]))
            callers.append(caller)
        server.until(lambda: len(server.arrivals) == 2)
        server.listener.hang_up(one.curve_public)
        server.until(lambda: callers[0].receive() is CallerEvent.DISCONNECTED)
        callers[1].send(b"here")
        server.until(lambda: server.arrivals[-1].header == b"here")
        assert callers[1].receive() is None


def test_connections_beyond_the_limit_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINES", 8)
    with ExitStack() as stack:
        server = Server(stack)
        made = [stack.enter_context(connection(server)) for _ in range(12)]
        cut: list[socket.socket] = []

        def four_are_cut() -> bool:
            cut.extend(s for s in made if s not in cut and is_cut(s))
            return len(cut) >= 4

        server.until(four_are_cut)


def connection(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.port)), WITHIN_S)


def is_cut(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        while stranger.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_thousand_connections_that_say_nothing_take_bounded_memory_and_descriptors() -> None:
    zeromq.raise_descriptor_limit()
    me = psutil.Process()
    with ExitStack() as stack:
        member = new_identity()
        server = Server(stack, member)
        before, fds = own_bytes(), me.num_fds()
        most_fds = most_bytes = 0
        with subprocess.Popen(
            [*(sys.executable, "-m", "tests.integration.transport.silent"), server.port, "10000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as strangers:
            assert strangers.stdout is not None
            while not select([strangers.stdout], [], [], 0.05)[0]:
                most_fds = max(most_fds, me.num_fds() - fds)
                most_bytes = max(most_bytes, own_bytes() - before)
            assert int(strangers.stdout.readline()) == 10_000
            caller = transport_of(member, stack).call(
                server.listener.address, server_key=server.keys.curve_public
            )
            server.until(lambda: caller.receive() is CallerEvent.CONNECTED)
            server.until(lambda: me.num_fds() - fds < 100)  # they are reaped
            strangers.kill()
        assert 0 < most_fds < lines.MAX_LINES + 500
        assert most_bytes < 100 * MIB


# -- options, and failing closed ----------------------------------------------------------------

COMMON = {
    zmq.HEARTBEAT_IVL: 2000,
    zmq.HEARTBEAT_TIMEOUT: 6000,
    zmq.HEARTBEAT_TTL: 6000,
    zmq.TCP_MAXRT: 8000,
    zmq.LINGER: 200,
    zmq.MECHANISM: zmq.CURVE,
}
LISTENER = {
    **COMMON,
    zmq.MAXMSGSIZE: 4096 + 64,
    zmq.SNDHWM: 96,
    zmq.RCVHWM: 256,
    zmq.HANDSHAKE_IVL: 2000,
    zmq.CURVE_SERVER: 1,
    zmq.ZAP_ENFORCE_DOMAIN: 1,
}
CALLER = {
    **COMMON,
    zmq.MAXMSGSIZE: (1 << 20) + 64 + 1024,
    zmq.SNDHWM: 64,
    zmq.RCVHWM: 64,
    zmq.IMMEDIATE: 1,
    zmq.CONNECT_TIMEOUT: 3000,
    zmq.RECONNECT_IVL: 200,
    zmq.RECONNECT_IVL_MAX: 5000,
    zmq.HANDSHAKE_IVL: 5000,
}


def test_every_socket_has_the_options_that_were_measured() -> None:
    with ExitStack() as stack:
        server = Server(stack)
        caller = transport_of(new_identity(), stack).call(
            server.listener.address, server_key=server.keys.curve_public
        )
        listener = server.listener.socket
        assert {option: listener.getsockopt(option) for option in LISTENER} == LISTENER
        assert listener.getsockopt(zmq.ZAP_DOMAIN) == b"listener-1"
        assert {option: caller.socket.getsockopt(option) for option in CALLER} == CALLER


def test_a_listener_takes_no_key_once_the_authenticator_is_dead() -> None:
    with ExitStack() as stack:
        member = new_identity()
        server = Server(stack, member)
        assert server.transport._zap is not None
        server.transport._zap.stop()
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            for option, value in (
                (zmq.CURVE_SERVERKEY, server.keys.curve_public),
                (zmq.CURVE_SECRETKEY, member.curve_secret),
                (zmq.CURVE_PUBLICKEY, member.curve_public),
                (zmq.HANDSHAKE_IVL, 1000),
                (zmq.LINGER, 0),
            ):
                dealer.setsockopt(option, value)
            ends = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
            monitor = dealer.get_monitor_socket(ends | zmq.Event.HANDSHAKE_FAILED_AUTH)
            dealer.connect(server.listener.address)
            assert monitor.poll(int(WITHIN_S * 1000))
            assert recv_monitor_message(monitor)["event"] != zmq.Event.HANDSHAKE_SUCCEEDED
            dealer.disable_monitor()
            monitor.close(0)

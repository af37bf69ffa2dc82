"""Whoever is at a peer's port, whatever they send: it costs little, and others are served."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest
import zmq

from peer.dataplane.events import ShutOut
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.transport.base import Caller, CallerEvent
from protocol.transport.keys import Identity, new_identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    Ask,
    Data,
    Done,
    Epoch,
    Get,
    Hello,
    NotYet,
    Part,
    PeerMessage,
    Refuse,
    Seen,
    SnapshotManifest,
    TensorSpec,
)
from tests.integration.dataplane.children import RUN, A, Shop
from tests.integration.dataplane.shop import (
    GREETING,
    WITHIN_S,
    Port,
    Tap,
    connections,
    is_cut,
    members,
    port,
    pour,
    until,
)
from tests.integration.transport.flood import flooding

pytestmark = pytest.mark.usefixtures("tracked")

MIB = 1 << 20
BODY_BYTES = 24 * MIB
VANISH = "tests.integration.dataplane.vanish"
OTHER_RUN = b"o" * 16


@pytest.fixture(scope="module")
def keys() -> tuple[list[Identity], dict[bytes, PeerId]]:
    return members(9)


@pytest.fixture(scope="module")
def shop(
    tracked: None,
    keys: tuple[list[Identity], dict[bytes, PeerId]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Shop:
    """A snapshot of a's, and who may have it."""
    body = Random(7).randbytes(BODY_BYTES)
    path = tmp_path_factory.mktemp("shop") / "served"
    path.write_bytes(body)
    manifest = SnapshotManifest(
        run=RUN, sender=A, part=Part.RESULT, round_no=1, base=b"", memory=b"", degree=1,
        num_examples=1, num_steps=1, nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(),
        tensors=(TensorSpec("params", "w", "uint8", (BODY_BYTES,), digest(body)),),
    )  # fmt: skip
    encoded = encode_document(manifest)
    return Shop(new_identity(), keys[1], SnapshotRef(encoded, digest(encoded), str(path), 0))


@pytest.fixture(scope="module")
def counter(shop: Shop, keys: tuple[list[Identity], dict[bytes, PeerId]]) -> Iterator[Port]:
    with port(shop) as it:
        for key in keys[0][:2]:  # what every server needs once
            with member(it, key) as warm:
                warm.fetch(shop.ref)
        yield it


class Member:
    """One that talks to a port by hand."""

    def __init__(self, transport: ZeroMq, address: str, key: bytes) -> None:
        self.caller: Caller = transport.call(address, server_key=key)
        self._poller = transport.poller()
        self._poller.add(self.caller)

    def event(self) -> CallerEvent:
        """What becomes of the connection next; words are passed over."""
        while True:
            if isinstance(answer := self._next(), CallerEvent):
                return answer

    def say(self, message: PeerMessage) -> None:
        assert self.caller.send(PEER.encode(message))

    def hear(self) -> PeerMessage:
        while True:
            answer = self._next()
            assert not isinstance(answer, CallerEvent), answer
            return PEER.decode(answer[0] if isinstance(answer, tuple) else answer)

    def _next(self) -> bytes | tuple[bytes, int] | CallerEvent:
        while True:
            if (answer := self.caller.receive()) is not None:
                return answer
            assert self._poller.poll(WITHIN_S)

    def fetch(self, ref: SnapshotRef) -> None:
        """Have the whole body sent, piece by piece."""
        for offset in range(0, BODY_BYTES, MAX_PIECE_BYTES):
            self.say(Get(1, ref.digest, offset, offset + MAX_PIECE_BYTES, MAX_PIECE_BYTES, 1))
            while isinstance(answer := self.hear(), NotYet):
                pass  # what it has asked for stands, and is answered now and then
            assert answer == Data(1, offset)

    def ask(self) -> None:
        self.say(Ask(RUN, Part.RESULT, 2, 1))
        assert isinstance(self.hear(), NotYet)


@contextmanager
def member(to: Port, keys: Identity, *, address: str = "") -> Iterator[Member]:
    """One that has shaken hands."""
    transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
    try:
        it = Member(transport, address or to.address, to.key)
        assert it.event() is CallerEvent.CONNECTED
        yield it
    finally:
        transport.close()


Keys = tuple[list[Identity], dict[bytes, PeerId]]


# -- before the handshake ------------------------------------------------------------------------


def test_a_hundred_that_greet_a_byte_at_a_time_are_cut_and_hold_nobody_up(
    counter: Port, shop: Shop, keys: Keys
) -> None:
    with (
        counter.bounded(grown_bytes=4 * MIB) as check,
        member(counter, keys[0][0]) as friend,
        ExitStack() as stack,
    ):
        slow = connections(stack, counter.number, 100)
        for stranger in slow:
            stranger.sendall(GREETING[:11])  # so many as the other side must see to answer
        turns = count()

        def drip() -> bool:
            at = 11 + next(turns) // 2
            for stranger in slow if at < len(GREETING) - 1 else ():  # the last one never comes
                with suppress(OSError):
                    stranger.send(GREETING[at : at + 1])
            slow[:] = [stranger for stranger in slow if not is_cut(stranger)]
            friend.ask()
            return not slow

        check()
        until(drip)
        friend.fetch(shop.ref)


@pytest.mark.parametrize("claimed", [2 << 30, (1 << 63) - 1], ids=["2 GB", "all"])
@pytest.mark.parametrize("kind", [2, 6], ids=["message", "command"])
def test_a_frame_of_two_gigabytes_before_the_handshake_is_cut_at_its_header(
    counter: Port, claimed: int, kind: int
) -> None:
    with counter.bounded(grown_bytes=4 * MIB) as check, ExitStack() as stack:
        for liar in connections(stack, counter.number, 4):
            liar.sendall(GREETING + bytes([kind]) + claimed.to_bytes(8))
            pour(liar)
            check()


def test_whoever_has_no_key_or_a_wrong_one_is_not_heard(counter: Port, keys: Keys) -> None:
    known, stranger = keys[0][3], new_identity()
    ways: tuple[dict[int, bytes], ...] = (
        {},
        {zmq.PLAIN_USERNAME: b"m0", zmq.PLAIN_PASSWORD: b"-"},
        curve(counter.key, stranger),
        curve(stranger.curve_public, known),  # its own key is right, the other's is not
    )
    dealers: list[zmq.Socket[bytes]] = []
    told = len(counter.told)
    with (
        counter.bounded(grown_bytes=4 * MIB) as check,
        member(counter, keys[0][0]) as friend,
        zmq.Context() as context,
        ExitStack() as stack,
    ):
        for _ in range(8):
            for options in ways:
                dealer = stack.enter_context(context.socket(zmq.DEALER))
                dealer.setsockopt(zmq.LINGER, 0)
                for option, value in options.items():
                    dealer.setsockopt(option, value)
                dealer.connect(counter.address)
                dealers.append(dealer)
                dealer.send(PEER.encode(Done(RUN)))
                dealer.send(b"\xc1 no message at all")
        for _ in range(20):
            friend.ask()
            check()
        assert not any(dealer.poll(0) for dealer in dealers)
    assert len(counter.told) == told  # junk of an admitted key would have been told


def curve(server: bytes, own: Identity) -> dict[int, bytes]:
    return {
        zmq.CURVE_SERVERKEY: server,
        zmq.CURVE_PUBLICKEY: own.curve_public,
        zmq.CURVE_SECRETKEY: own.curve_secret,
    }


# -- after the handshake -------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [2 << 30, (1 << 63) - 1], ids=["2 GB", "all"])
def test_a_frame_of_two_gigabytes_after_the_handshake_is_cut_at_its_header(
    counter: Port, keys: Keys, claimed: int
) -> None:
    with counter.bounded(grown_bytes=4 * MIB) as check, ExitStack() as stack:
        tap = Tap(stack, counter.number)
        liar = stack.enter_context(member(counter, keys[0][2], address=tap.address))
        liar.ask()
        line = tap.seize()
        line.sendall(b"\2" + claimed.to_bytes(8))
        pour(line)
        check()


def test_a_packet_that_is_played_again_ends_its_connection(counter: Port, keys: Keys) -> None:
    with counter.bounded(grown_bytes=4 * MIB), ExitStack() as stack:
        tap = Tap(stack, counter.number)
        honest = stack.enter_context(member(counter, keys[0][2], address=tap.address))
        honest.ask()
        line = tap.seize()
        line.sendall(tap.sent[-1])
        until(lambda: is_cut(line))


def test_readers_that_never_read_cost_little_and_the_others_nothing(
    counter: Port, shop: Shop, keys: Keys
) -> None:
    with counter.bounded(grown_bytes=16 * MIB) as check, ExitStack() as stack:
        for greedy in keys[0][4:8]:
            tap = Tap(stack, counter.number)
            reader = stack.enter_context(member(counter, greedy, address=tap.address))
            reader.ask()
            tap.deafen()
            for xid in range(8):  # four are taken
                get = Get(xid, shop.ref.digest, 0, BODY_BYTES, MAX_PIECE_BYTES, 2**31)
                assert reader.caller.send(PEER.encode(get))
        with member(counter, keys[0][0]) as friend:
            for _ in range(3):
                friend.fetch(shop.ref)
                check()


def test_a_key_that_is_revoked_in_mid_transfer_is_cut_and_leaves_nothing(
    counter: Port, shop: Shop, keys: Keys
) -> None:
    revoked = keys[0][7]
    others = {key: name for key, name in shop.names.items() if key != revoked.curve_public}
    with counter.bounded(grown_bytes=16 * MIB), member(counter, keys[0][0]) as friend:
        for _ in range(4):
            with member(counter, revoked) as reader:
                reader.say(Get(1, shop.ref.digest, 0, BODY_BYTES, MAX_PIECE_BYTES, 2))
                assert reader.hear() == Data(1, 0)
                counter.admit(others)
                assert reader.event() is CallerEvent.DISCONNECTED
                assert reader.event() is CallerEvent.REFUSED
                friend.ask()
                counter.admit(shop.names)


def test_who_was_shut_out_is_not_let_in_by_the_next_process(
    shop: Shop, counter: Port, keys: Keys
) -> None:
    one, other = keys[0][8], keys[0][0]
    with port(shop) as first, flooding(first.number, server_key=first.key, keys=one):
        until(first.has_told)
        (out,) = {event for event in first.told if isinstance(event, ShutOut)}
        assert (out.peer, out.key) == ("m8", one.curve_public)
        assert "MiB of a message without an end" in out.reason
    with ExitStack() as stack:
        early = stack.enter_context(member(counter, one))  # before the refusals were read
        early.ask()
        friend = stack.enter_context(member(counter, other))
        counter.refuse([out.key])
        assert early.event() is CallerEvent.DISCONNECTED
        assert early.event() is CallerEvent.REFUSED
        counter.admit(shop.names)  # a new view changes nothing of it
        assert early.event() is CallerEvent.REFUSED
        friend.ask()


@pytest.mark.long
def test_thirty_connections_with_half_a_message_each_take_bounded_memory(
    counter: Port, keys: Keys
) -> None:
    """12 MiB each, which one alone may have: 360 together."""
    with (
        counter.bounded(grown_bytes=220 * MIB) as check,
        member(counter, keys[0][0]) as friend,
        ExitStack() as stack,
    ):
        taps = [Tap(stack, counter.number, limit=12 * MIB) for _ in range(30)]
        ports = [tap.port for tap in taps]
        flood = flooding(*ports, server_key=counter.key, keys=keys[0][2], frames=4200)
        stack.enter_context(flood)

        def all_is_said() -> bool:
            check()
            friend.ask()
            return all(tap.is_closed or tap.passed_bytes >= 12 * MIB for tap in taps)

        until(all_is_said)
        assert sum(tap.is_closed for tap in taps) >= 20


@pytest.mark.long
def test_a_member_that_goes_on_a_byte_at_a_time_is_cut(counter: Port, keys: Keys) -> None:
    with counter.bounded(grown_bytes=4 * MIB) as check, ExitStack() as stack:
        tap = Tap(stack, counter.number)
        slow = stack.enter_context(member(counter, keys[0][2], address=tap.address))
        slow.ask()
        line = tap.seize()
        line.sendall(b"\2" + (4000).to_bytes(8))  # a frame of a request's size, which never ends

        def drip() -> bool:
            with suppress(OSError):
                line.send(b"\0")
            return is_cut(line)

        with member(counter, keys[0][0]) as friend:
            until(drip)
            friend.ask()
        check()


@pytest.mark.long
def test_a_half_open_line_is_let_go(counter: Port, shop: Shop, keys: Keys) -> None:
    """Its end has shaken hands, has asked for all there is, and reads and says nothing more."""
    with counter.bounded(grown_bytes=16 * MIB) as check, ExitStack() as stack:
        before = counter.footprint()
        tap = Tap(stack, counter.number)
        reader = stack.enter_context(member(counter, keys[0][2], address=tap.address))
        tap.deafen()
        reader.say(Get(1, shop.ref.digest, 0, BODY_BYTES, MAX_PIECE_BYTES, 2**31))
        until(lambda: len(tap.sent) > 0 and len(tap.sent[-1]) > 0)
        tap.seize()
        check()
        assert counter.footprint().descriptors > before.descriptors
        until(lambda: counter.footprint().descriptors <= before.descriptors)


@pytest.mark.long
@pytest.mark.root
def test_a_reader_that_is_gone_without_a_word_is_let_go_and_comes_back(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", VANISH, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["connections"] == [1, 1]  # and none in the end
    assert told["grown_bytes"] <= 16 * MIB
    assert told["threads"] == 0
    assert told["pulled"]


# -- replays -------------------------------------------------------------------------------------


def test_words_of_another_run_are_refused_and_those_of_another_attempt_change_nothing(
    counter: Port, keys: Keys
) -> None:
    with counter.bounded(grown_bytes=4 * MIB), member(counter, keys[0][1]) as replayer:
        for word in (
            Ask(OTHER_RUN, Part.RESULT, 1, 1),
            Done(OTHER_RUN),
            Seen(OTHER_RUN, Epoch(1, 1)),
        ):
            replayer.say(word)
            refusal = replayer.hear()
            assert isinstance(refusal, Refuse)
            assert refusal.reason.startswith(f"run {OTHER_RUN.hex()[:12]}, a is in ")
        replayer.say(Hello(1, OTHER_RUN, "m1", bytes(32)))
        assert isinstance(replayer.hear(), Refuse)
        for attempt in (7, 3, 3, 7):  # each is a question of its own, answered under its number
            replayer.say(Ask(RUN, Part.RESULT, 2, attempt))
            answer = replayer.hear()
            assert isinstance(answer, NotYet)
            assert (answer.round_no, answer.attempt) == (2, attempt)

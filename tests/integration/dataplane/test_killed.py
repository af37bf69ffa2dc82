"""Either side of a transfer is killed in the middle of it: what was fetched stays fetched."""

import os
import signal
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

from peer.dataplane.events import Event, Pulled, PullFailed
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller, PullOrder
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.transport.keys import Identity, new_identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import Layout
from protocol.wire.messages import MAX_PIECE_BYTES, Part, SnapshotManifest, TensorSpec
from protocol.wire.pulling import WINDOW
from tests.integration.dataplane.children import RUN, A, Road, Shop, pull, running, serve
from tests.leaks import no_leaks  # noqa: F401 - a fixture

B = PeerId("b")
WITHIN_S = 30.0
SIZES = (3, 17_000_000, 1_000_003, 13_000_000, 64)  # bytes of each tensor: 31 MB
ENVELOPE = 1.01  # headers, encryption and handshakes
ROOM_BYTES = 5 << 20

pytestmark = pytest.mark.usefixtures("tracked", "no_leaks")

# 50 deaths of either side: a reader is killed twice with each of its seeds.
KILLS = [pytest.param(seed, marks=[pytest.mark.long] if seed else []) for seed in range(50)]


class Trade:
    """A snapshot of a's, which b is to have."""

    def __init__(self, folder: Path) -> None:
        self.a, self.b = new_identity(), new_identity()
        dice = Random(7)
        contents = [dice.randbytes(size) for size in SIZES]
        specs = tuple(
            TensorSpec("params", f"t{number}", "uint8", (len(content),), digest(content))
            for number, content in enumerate(contents)
        )
        layout = Layout.of(specs)
        self.body = bytearray(layout.body_bytes)
        for place, content in zip(layout.places, contents, strict=True):
            self.body[place.start : place.end] = content
        (folder / "served").write_bytes(self.body)
        self.manifest = SnapshotManifest(
            run=RUN, sender=A, part=Part.RESULT, round_no=1, base=b"", memory=b"", degree=1,
            num_examples=1, num_steps=1, nova_a=1.0, lr=0.1, start_loss=1.0,
            class_counts=(), tensors=specs,
        )  # fmt: skip
        encoded = encode_document(self.manifest)
        self.ref = SnapshotRef(encoded, digest(encoded), str(folder / "served"), 0)
        self.received = folder / "received"

    def shop(self, *more: Identity) -> Shop:
        names = {keys.curve_public: PeerId(f"c{i}") for i, keys in enumerate(more)}
        return Shop(self.a, {self.b.curve_public: B, **names}, self.ref)

    def order(self, address: str, path: Path | None = None) -> PullOrder:
        return PullOrder(
            ticket=1,
            neighbour=A,
            address=address,
            server_key=self.a.curve_public,
            manifest=self.manifest,
            digest=self.ref.digest,
            path=path or self.received,
        )


class Ending:
    """A pull of b's in this process, and how it ends."""

    def __init__(self, trade: Trade, address: str, stack: ExitStack) -> None:
        keys = trade.b
        transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
        stack.callback(transport.close)
        self._events: Inbox[Event] = Inbox(transport.wake())
        self._poller = transport.poller()
        self._poller.add(self._events.wake)
        puller = stack.enter_context(Puller(transport, events=self._events))
        puller.pull(trade.order(address))

    def wait(self) -> Event:
        while True:
            assert self._poller.poll(WITHIN_S)
            for event in self._events.drain():
                if isinstance(event, Pulled | PullFailed):
                    return event


def port_of(pipe: Connection) -> int:
    assert pipe.poll(WITHIN_S)
    return int(str(pipe.recv()).rpartition(":")[2])


@pytest.mark.parametrize("seed", KILLS)
def test_a_killed_server_that_comes_back_sends_one_window_twice_at_most(
    tmp_path: Path, seed: int
) -> None:
    trade = Trade(tmp_path)
    kill_at = Random(seed).randrange(1, len(trade.body))
    with ExitStack() as stack:
        road = Road(stack)
        first, pid = stack.enter_context(running(serve, trade.shop()))
        second, _ = stack.enter_context(running(serve, trade.shop()))
        road.port, later = port_of(first), port_of(second)

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            road.port = later

        road.at(kill_at, kill)
        end = Ending(trade, road.address, stack).wait()
        assert end == Pulled(1, A, len(trade.body))
        assert road.port == later
        twice = WINDOW * MAX_PIECE_BYTES
        assert road.came_bytes <= (len(trade.body) + twice) * ENVELOPE
    assert trade.received.read_bytes() == trade.body


@pytest.mark.parametrize("seed", KILLS[: len(KILLS) // 2])
def test_a_killed_reader_costs_the_others_nothing_and_may_come_again(
    tmp_path: Path, seed: int
) -> None:
    trade = Trade(tmp_path)
    reader = new_identity()
    with ExitStack() as stack:
        road = Road(stack)
        server, _ = stack.enter_context(running(serve, trade.shop(reader)))
        port = road.port = port_of(server)
        with ExitStack() as warm:
            Ending(trade, f"tcp://127.0.0.1:{port}", warm).wait()  # what every server needs once
        server.send("memory")
        before = server.recv()
        for life in range(2):
            kill_at = road.came_bytes + Random(f"{seed}/{life}").randrange(1, len(trade.body))
            order = trade.order(road.address, tmp_path / "of the dead")
            with running(pull, reader, order) as (child, pid), ExitStack() as other:
                road.at(kill_at, partial(os.kill, pid, signal.SIGKILL))
                end = Ending(trade, f"tcp://127.0.0.1:{port}", other).wait()
                assert end == Pulled(1, A, len(trade.body))
                with pytest.raises(EOFError):  # by now, or soon, it is dead
                    while child.poll(WITHIN_S):
                        assert child.recv() < len(trade.body)
        server.send("memory")
        assert server.recv() - before <= ROOM_BYTES
    assert trade.received.read_bytes() == trade.body

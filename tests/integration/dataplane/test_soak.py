"""Eight peers exchange snapshots, all of which are new, for hundreds of rounds: nothing grows.

Each peer is a process with the data plane of a real one and nothing that trains. Every tensor
changes in every round, so that all bytes cross.
"""

import os
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from threading import active_count

import pytest

from peer.dataplane.events import Crashed, Event, Pulled, PullFailed
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller, PullOrder
from peer.dataplane.server import Server
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.topology import neighbours, parse_topology
from protocol.transport.keys import Identity, new_identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import decode_document, encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import ALIGN_BYTES, schema_digest
from protocol.wire.messages import Part, SnapshotManifest, TensorSpec
from tests.integration.dataplane.children import RUN, running

WITHIN_S = 120.0
GROWTH = 1.05
PEERS = tuple(PeerId(f"p{number}") for number in range(8))


@dataclass(frozen=True)
class Seat:
    name: PeerId
    keys: Identity
    names: dict[bytes, PeerId]
    folder: Path
    num_tensors: int
    tensor_bytes: int  # a multiple of the alignment


@dataclass(frozen=True)
class Offer:
    sender: PeerId
    address: str
    key: bytes
    ref: SnapshotRef


@dataclass(frozen=True)
class Standing:
    """What a peer's process uses."""

    resident_bytes: int
    files: int
    threads: int


class Peer:
    """One peer's data plane, in its own process."""

    def __init__(self, seat: Seat, stack: ExitStack) -> None:
        self._seat = seat
        keys = seat.keys
        transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
        stack.callback(transport.close)
        self._events: Inbox[Event] = Inbox(transport.wake())
        self._poller = transport.poller()
        self._poller.add(self._events.wake)
        self._server = stack.enter_context(
            Server(
                transport,
                bind="tcp://127.0.0.1:0",
                name=seat.name,
                sign_secret=keys.sign_secret,
                events=self._events,
            )
        )
        self._puller = stack.enter_context(Puller(transport, events=self._events))
        self._content = bytearray(Random(seat.name).randbytes(seat.tensor_bytes))
        bare = tuple(self._spec(number, b"") for number in range(seat.num_tensors))
        self._server.open(RUN, schema_digest(bare))
        self._server.members(seat.names)
        self._tickets = 0

    def _spec(self, number: int, content: bytes | bytearray) -> TensorSpec:
        shape = (self._seat.tensor_bytes,)
        return TensorSpec("params", f"t{number}", "uint8", shape, digest(content))

    def publish(self, round_no: int) -> Offer:
        """Write a snapshot of which no tensor was ever seen before, and serve it."""
        specs = []
        path = self._seat.folder / f"{self._seat.name}.{round_no:08d}"
        with path.open("wb") as file:
            for number in range(self._seat.num_tensors):
                self._content[:8] = (round_no << 32 | number).to_bytes(8)
                specs.append(self._spec(number, self._content))
                file.write(self._content)
        (self._seat.folder / f"{self._seat.name}.{round_no - 2:08d}").unlink(missing_ok=True)
        manifest = SnapshotManifest(
            run=RUN, sender=self._seat.name, part=Part.RESULT, round_no=round_no, base=b"",
            memory=b"", degree=2, num_examples=1, num_steps=1, nova_a=1.0, lr=0.1,
            start_loss=1.0, class_counts=(), tensors=tuple(specs),
        )  # fmt: skip
        encoded = encode_document(manifest)
        ref = SnapshotRef(encoded, digest(encoded), str(path), 0)
        self._server.publish(ref, round_no)
        self._puller.hold(ref)
        return Offer(self._seat.name, self._server.address, self._seat.keys.curve_public, ref)

    def pull(self, offers: list[Offer], round_no: int) -> Standing:
        for offer in offers:
            self._tickets += 1
            slot = f"{self._seat.name}.from.{offer.sender}.{round_no % 2}"
            order = PullOrder(
                ticket=self._tickets,
                neighbour=offer.sender,
                address=offer.address,
                server_key=offer.key,
                manifest=decode_document(SnapshotManifest, offer.ref.manifest),
                digest=offer.ref.digest,
                path=self._seat.folder / slot,
            )
            self._puller.pull(order)
        left = len(offers)
        whole = self._seat.num_tensors * self._seat.tensor_bytes
        while left:
            assert self._poller.poll(WITHIN_S), "a pull did not end"
            for event in self._events.drain():
                assert not isinstance(event, Crashed | PullFailed), event
                if isinstance(event, Pulled):
                    assert event.num_bytes == whole
                    left -= 1
        resident = int(Path("/proc/self/statm").read_text().split()[1])
        page = os.sysconf("SC_PAGE_SIZE")
        return Standing(resident * page, len(list(Path("/proc/self/fd").iterdir())), active_count())


def live(pipe: Connection, seat: Seat) -> None:
    with ExitStack() as stack:
        peer = Peer(seat, stack)
        while True:
            round_no, offers = pipe.recv()
            pipe.send(peer.pull(offers, round_no) if offers else peer.publish(round_no))


@pytest.mark.usefixtures("tracked")
@pytest.mark.parametrize(
    ("rounds", "settled", "num_tensors", "tensor_bytes"),
    [
        pytest.param(60, 20, 5, 64_000, id="small", marks=pytest.mark.long),
        pytest.param(
            500, 50, 45, 1_000_000, id="45 MB", marks=[pytest.mark.long, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_nothing_grows(
    tmp_path: Path, rounds: int, settled: int, num_tensors: int, tensor_bytes: int
) -> None:
    assert tensor_bytes % ALIGN_BYTES == 0
    identities = {name: new_identity() for name in PEERS}
    names = {keys.curve_public: name for name, keys in identities.items()}
    graph = parse_topology("k-regular:2").graph(PEERS, 0)
    asked = {name: neighbours(graph, name) for name in PEERS}
    early: dict[PeerId, Standing] = {}
    late: dict[PeerId, Standing] = {}
    with ExitStack() as stack:
        pipes = {
            name: stack.enter_context(
                running(live, Seat(name, keys, names, tmp_path, num_tensors, tensor_bytes))
            )[0]
            for name, keys in identities.items()
        }
        for round_no in range(1, rounds + 1):
            for pipe in pipes.values():
                pipe.send((round_no, []))
            offers = {name: pipe.recv() for name, pipe in pipes.items()}
            for name, pipe in pipes.items():
                pipe.send((round_no, [offers[other] for other in asked[name]]))
            late = {name: pipe.recv() for name, pipe in pipes.items()}
            if round_no == settled:
                early = late
    for name in PEERS:
        print(name, early[name], late[name])  # noqa: T201 - the figures of docs/performance.md
        assert late[name].resident_bytes <= GROWTH * early[name].resident_bytes
        assert late[name].files <= early[name].files
        assert late[name].threads <= early[name].threads

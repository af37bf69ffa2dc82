"""How fast a peer answers while it trains: small requests, and a pull of 45 MB.

    python benchmarks/responsiveness.py [--repetitions 5] [--requests 300]

A node's data plane runs in one process, a trainer (lenet5, batch 1, one thread) in a second, the
asking peer in this one; all on this machine, over loopback with CURVE. For the idle figures the
trainer is stopped (SIGSTOP), so that idle and busy alternate within one run. Prints one JSON
object: medians over the repetitions. The bars: p99 at most 50 ms, ratio at least 0.5.
"""

import argparse
import json
import os
import signal
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from _children import running

from peer.dataplane.events import Crashed, Event, Pulled, PullFailed
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller, PullOrder
from peer.dataplane.server import Server
from peer.work import SnapshotRef
from protocol.clock import MonotonicClock
from protocol.ids import PeerId
from protocol.transport.base import CallerEvent
from protocol.transport.keys import Identity, new_identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import schema_digest
from protocol.wire.messages import WIRE_VERSION, Hello, Part, SnapshotManifest, TensorSpec

SERVER, CLIENT = PeerId("server"), PeerId("client")
RUN = bytes(16)
NUM_TENSORS, TENSOR_BYTES = 45, 1_000_000
BETWEEN_REQUESTS_S = 0.005
WITHIN_S = 30.0
PACE = {"p99_ms": 50.0, "ratio": 0.5}


@dataclass(frozen=True)
class Shop:
    """What the serving process serves, and to whom."""

    ref: SnapshotRef
    schema: bytes
    keys: Identity
    names: dict[bytes, PeerId]


def serve(pipe: Connection, shop: Shop) -> None:
    """The node's process: no torch; a main thread that waits, and the data plane's threads."""
    keys = shop.keys
    transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
    with closing(transport):
        events: Inbox[Event] = Inbox(transport.wake())
        bind = "tcp://127.0.0.1:0"
        with (
            Server(
                transport, bind=bind, name=SERVER, sign_secret=bytes(32), events=events
            ) as server,
            Puller(transport, events=events),
        ):
            server.open(RUN, shop.schema)
            server.members(shop.names)
            server.publish(shop.ref, 1)
            pipe.send(server.address)
            pipe.recv()


def train(pipe: Connection) -> None:
    """The trainer's process: steps of lenet5 at batch 1, for ever."""
    import torch  # noqa: PLC0415 - the other processes must not import it
    from torch import nn  # noqa: PLC0415 - as above

    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    image, label = torch.zeros(1, 1, 28, 28), torch.zeros(1, dtype=torch.int64)
    for step in range(10**9):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(image), label).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step == 100:
            pipe.send("warm")


class Client:
    """The asking peer: a control connection, and a puller."""

    def __init__(self, transport: ZeroMq, address: str, shop: Shop) -> None:
        self._address, self._shop = address, shop
        self._events: Inbox[Event] = Inbox(transport.wake())
        self.puller = Puller(transport, events=self._events)
        self._clock = MonotonicClock()
        self._caller = transport.call(address, server_key=shop.keys.curve_public)
        self._poller = transport.poller()
        self._poller.add(self._caller)
        self._waiting = transport.poller()
        self._waiting.add(self._events.wake)
        self._hello = PEER.encode(Hello(WIRE_VERSION, RUN, CLIENT, shop.schema))
        self._ticket = 0
        while self._hear() is not CallerEvent.CONNECTED:
            pass

    def requests(self, count: int) -> list[float]:
        """Seconds from each greeting to its answer."""
        took = []
        for _ in range(count):
            self._waiting.poll(BETWEEN_REQUESTS_S)
            begun_s = self._clock.now_s()
            self._caller.send(self._hello)
            self._hear()
            took.append(self._clock.now_s() - begun_s)
        return took

    def pull(self, manifest: SnapshotManifest, path: Path) -> float:
        """Bytes per second of one pull, verification included."""
        self._ticket += 1
        order = PullOrder(
            ticket=self._ticket,
            neighbour=SERVER,
            address=self._address,
            server_key=self._shop.keys.curve_public,
            manifest=manifest,
            digest=self._shop.ref.digest,
            path=path,
        )
        begun_s = self._clock.now_s()
        self.puller.pull(order)
        while True:
            if not self._waiting.poll(WITHIN_S):
                raise SystemExit("a pull did not end")
            for event in self._events.drain():
                match event:
                    case Pulled():
                        return NUM_TENSORS * TENSOR_BYTES / (self._clock.now_s() - begun_s)
                    case Crashed() | PullFailed():
                        raise SystemExit(f"the pull failed: {event}")
                    case _:
                        continue

    def _hear(self) -> object:
        if not self._poller.poll(WITHIN_S):
            raise SystemExit("the server does not answer")
        return self._caller.receive()


def snapshot(folder: Path) -> tuple[SnapshotRef, SnapshotManifest]:
    content = Random(0).randbytes(TENSOR_BYTES)
    padded = content + bytes(-TENSOR_BYTES % 64)
    (folder / "served").write_bytes(padded * NUM_TENSORS)
    tensor_digest = digest(content)
    manifest = SnapshotManifest(
        run=RUN, sender=SERVER, part=Part.RESULT, round_no=1,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1,
        nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(),
        tensors=tuple(
            TensorSpec("params", f"t{i}", "uint8", (TENSOR_BYTES,), tensor_digest)
            for i in range(NUM_TENSORS)
        ),
    )  # fmt: skip
    encoded = encode_document(manifest)
    return SnapshotRef(encoded, digest(encoded), str(folder / "served"), 0), manifest


def measure(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    ref, manifest = snapshot(folder)
    server_keys, client_keys = new_identity(), new_identity()
    names = {server_keys.curve_public: SERVER, client_keys.curve_public: CLIENT}
    shop = Shop(ref, schema_digest(manifest.tensors), server_keys, names)
    seen: dict[str, dict[str, list[float]]] = {
        state: {"p50_ms": [], "p99_ms": [], "pull_mb_s": []} for state in ("idle", "training")
    }
    transport = ZeroMq(public_key=client_keys.curve_public, secret_key=client_keys.curve_secret)
    with (
        closing(transport),
        running(serve, shop) as (server, _),
        running(train) as (trainer, trainer_pid),
    ):
        client = Client(transport, server.recv(), shop)
        trainer.recv()
        with client.puller:
            client.pull(manifest, folder / "received")  # the first one makes the file
            for _ in range(args.repetitions):
                for state, stop in (("idle", signal.SIGSTOP), ("training", signal.SIGCONT)):
                    os.kill(trainer_pid, stop)
                    took = quantiles(client.requests(args.requests), n=100)
                    rates = [client.pull(manifest, folder / "received") for _ in range(args.pulls)]
                    seen[state]["p50_ms"].append(1000 * took[49])
                    seen[state]["p99_ms"].append(1000 * took[98])
                    seen[state]["pull_mb_s"].append(median(rates) / 1e6)
    return {
        state: {name: round(median(values), 3) for name, values in figures.items()}
        for state, figures in seen.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300, help="in each repetition")
    parser.add_argument("--pulls", type=int, default=3, help="in each repetition")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        figures = measure(args, Path(folder))
    ratio = round(figures["training"]["pull_mb_s"] / figures["idle"]["pull_mb_s"], 3)
    met = figures["training"]["p99_ms"] <= PACE["p99_ms"] and ratio >= PACE["ratio"]
    print(json.dumps({**figures, "ratio": ratio, "bars_met": met, "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()

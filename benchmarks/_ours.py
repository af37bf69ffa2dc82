"""Kinfolk's own transfer, for a benchmark: its server's and its puller's threads, no node."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

from peer.dataplane.checking import Checker, Copy
from peer.dataplane.events import Crashed, Event, Pulled, PullFailed
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller, PullOrder
from peer.dataplane.rebuilding import Rebuild
from peer.dataplane.server import Server
from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.steps import STEPS, Stepper
from protocol.transport.base import CallerEvent
from protocol.transport.security import Clear
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import PEER, decode_document, encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import Layout, schema_digest
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    Get,
    Part,
    SnapshotManifest,
    TensorSpec,
)
from protocol.wire.pulling import Verify

__all__ = ["Kinfolk", "Shop", "coded_bytes", "make_shop", "make_step_shop", "stall"]

SERVER = PeerId("server")
RUN = bytes(16)
WITHIN_S = 60.0
TOPK = 0.1  # share of the numbers that codec topk sends


@dataclass(frozen=True)
class Shop:
    """What is served, by whom, to whom. CURVE keys: raw, public and secret."""

    refs: tuple[SnapshotRef, SnapshotRef]  # fetched in turn: a reader holds what it has fetched
    server: tuple[bytes, bytes]
    readers: tuple[tuple[bytes, bytes], ...]
    is_clear: bool
    shapes: tuple[tuple[int, ...], ...]  # of the tensors, before they were coded
    codec: str
    base: SnapshotRef | None = None  # where `refs` are steps: what the readers have
    leads: tuple[SnapshotManifest, ...] = ()  # to what they lead


def make_shop(
    paths: tuple[Path, Path],
    shapes: Sequence[tuple[int, ...]],
    keys: list[tuple[bytes, bytes]],
    *,
    is_clear: bool,
    codec: str = "fp32",
) -> Shop:
    """Describe bodies of float32 tensors, or what a codec made of them; the last key serves."""
    specs = _coded(shapes, codec)
    first, second = (_snapshot(path, specs, number) for number, path in enumerate(paths, 1))
    return Shop((first, second), keys[-1], tuple(keys[:-1]), is_clear, tuple(shapes), codec)


def make_step_shop(
    folder: Path,
    shapes: Sequence[tuple[int, ...]],
    keys: list[tuple[bytes, bytes]],
    *,
    is_clear: bool,
    codec: str,
) -> Shop:
    """Two steps from one version of random matrices to two others, and what they lead to."""
    dice = np.random.default_rng(1)
    plain = _plain(shapes)
    stepper = Stepper(codec, TOPK, plain)
    step_specs = stepper.step_specs
    before = [dice.standard_normal(shape, np.float32) for shape in shapes]
    base = _write(folder / "base", plain, [matrix.tobytes() for matrix in before], 1)
    refs, leads = [], []
    for number in (1, 2):
        steps, whole = [], []
        for matrix in before:
            wanted = matrix + dice.standard_normal(matrix.shape, np.float32) * np.float32(0.01)
            found = stepper.encode(matrix, wanted)
            if found is None:
                raise RuntimeError("no step between finite numbers")
            steps.append(found[0].tobytes())
            whole.append(digest(found[1].tobytes()))
        refs.append(_write(folder / f"step-{number}", step_specs, steps, number + 1))
        specs = zip(plain, whole, strict=True)
        leads.append(_manifest([replace(spec, digest=name) for spec, name in specs], number + 1))
    return Shop(
        (refs[0], refs[1]), keys[-1], tuple(keys[:-1]), is_clear, tuple(shapes), codec,
        base=base, leads=tuple(leads),
    )  # fmt: skip


def _write(
    path: Path, specs: Sequence[TensorSpec], tensors: Sequence[bytes], round_no: int
) -> SnapshotRef:
    with path.open("wb") as file:
        for place, tensor in zip(Layout.of(specs).places, tensors, strict=True):
            file.seek(place.start)
            file.write(tensor)
    return _snapshot(path, specs, round_no)


def _plain(shapes: Sequence[tuple[int, ...]]) -> list[TensorSpec]:
    return [TensorSpec("params", f"t{i}", "float32", s, bytes(32)) for i, s in enumerate(shapes)]


def _coded(shapes: Sequence[tuple[int, ...]], codec: str) -> tuple[TensorSpec, ...]:
    if codec == "fp32":
        return tuple(_plain(shapes))
    if codec in STEPS:
        return Stepper(codec, TOPK, _plain(shapes)).step_specs
    from protocol.codecs import Coder  # noqa: PLC0415 - torch, where it is needed

    return Coder(codec, _plain(shapes)).coded_specs


def coded_bytes(shapes: Sequence[tuple[int, ...]], codec: str) -> int:
    """Of a body, as it travels."""
    return Layout.of(_coded(shapes, codec)).body_bytes


def _snapshot(path: Path, specs: Sequence[TensorSpec], round_no: int) -> SnapshotRef:
    body = memoryview(path.read_bytes())
    places = Layout.of(specs).places
    tensors = [
        TensorSpec(spec.section, spec.name, spec.dtype, spec.shape, digest(body[at.start : at.end]))
        for spec, at in zip(specs, places, strict=True)
    ]
    encoded = encode_document(_manifest(tensors, round_no))
    return SnapshotRef(encoded, digest(encoded), str(path), 0)


def _manifest(tensors: Sequence[TensorSpec], round_no: int) -> SnapshotManifest:
    return SnapshotManifest(
        run=RUN, sender=SERVER, part=Part.RESULT, round_no=round_no,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1,
        nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(), tensors=tuple(tensors),
    )  # fmt: skip


def _transport(keys: tuple[bytes, bytes], *, is_clear: bool) -> ZeroMq:
    public, secret = keys
    security = Clear(public) if is_clear else None
    return ZeroMq(public_key=public, secret_key=secret, security=security)


def _trust(_checker: Checker, item: Copy | Verify) -> tuple[int, bool] | None:
    """In place of hashing: what the transfer alone takes."""
    return (item.tensor, True) if isinstance(item, Verify) and item.is_last else None


@dataclass(frozen=True)
class Kinfolk:
    """`is_checked` hashes every tensor; `is_mapped` makes tensors of torch of what came."""

    shop: Shop
    folder: Path
    is_checked: bool = True
    is_mapped: bool = False

    @contextmanager
    def serve(self, path: Path, num_bytes: int) -> Iterator[str]:
        shop = self.shop
        manifest = decode_document(SnapshotManifest, shop.refs[0].manifest)
        transport = _transport(shop.server, is_clear=shop.is_clear)
        with closing(transport):
            events: Inbox[Event] = Inbox(transport.wake())
            bind = "tcp://127.0.0.1:0"
            with Server(
                transport, bind=bind, name=SERVER, events=events, sign_secret=bytes(32)
            ) as server:
                server.open(RUN, schema_digest(manifest.tensors))
                server.members({k: PeerId(f"r{i}") for i, (k, _) in enumerate(shop.readers)})
                for round_no, ref in enumerate(shop.refs, 1):
                    server.publish(ref, round_no)
                yield server.address

    @contextmanager
    def reader(self, address: str, num_bytes: int, number: int = 0) -> Iterator[Callable[[], None]]:
        shop = self.shop
        transport = _transport(shop.readers[number], is_clear=shop.is_clear)
        turns = cycle(self._orders())
        path = self.folder / f"received-{number}-{shop.is_clear}-{self.is_checked}-{shop.codec}"
        with ExitStack() as stack:
            stack.enter_context(closing(transport))
            events: Inbox[Event] = Inbox(transport.wake())
            poller = transport.poller()
            poller.add(events.wake)
            if not self.is_checked:
                Checker._do = _trust  # type: ignore[method-assign,assignment]  # noqa: SLF001 - this process ends with it
            puller = stack.enter_context(Puller(transport, events=events))
            tickets = iter(range(1, 1 << 30))

            def pull() -> None:
                ref, manifest, lead = next(turns)
                order = PullOrder(
                    ticket=next(tickets),
                    neighbour=SERVER,
                    address=address,
                    server_key=shop.server[0],
                    manifest=manifest,
                    digest=ref.digest,
                    path=path,
                )
                if lead is not None and shop.base is not None:
                    rebuild = Rebuild(base=shop.base, manifest=lead, path=path)
                    order = replace(order, path=path.with_suffix(".step"), rebuild=rebuild)
                    ref = SnapshotRef(encode_document(lead), bytes(32), str(path), 0)
                puller.pull(order)
                while True:
                    poller.poll(WITHIN_S)
                    for event in events.drain():
                        match event:
                            case Pulled():
                                if self.is_mapped:
                                    self._map(ref, path)
                                return
                            case Crashed() | PullFailed():
                                raise RuntimeError(str(event))
                            case _:
                                continue

            yield pull

    def _orders(self) -> list[tuple[SnapshotRef, SnapshotManifest, SnapshotManifest | None]]:
        """What is fetched in turn, with its manifest, and that of what it leads to."""
        manifests = [decode_document(SnapshotManifest, ref.manifest) for ref in self.shop.refs]
        leads = self.shop.leads or (None, None)
        return list(zip(self.shop.refs, manifests, leads, strict=True))

    def _map(self, ref: SnapshotRef, path: Path) -> None:
        from peer.checkpoint import map_snapshot  # noqa: PLC0415 - torch, where it is needed

        _, sections = map_snapshot(SnapshotRef(ref.manifest, ref.digest, str(path), 0))
        if self.shop.codec not in {"fp32", *STEPS}:
            from protocol.codecs import Coder  # noqa: PLC0415 - as above

            read = Coder(self.shop.codec, _plain(self.shop.shapes)).decode(sections)["params"]
        else:
            read = sections["params"]
        if [tuple(t.shape) for t in read.values()] != list(self.shop.shapes):
            raise RuntimeError("the tensors that came are not those that were sent")


@contextmanager
def stall(shop: Shop, address: str, num_bytes: int, number: int) -> Iterator[Callable[[], None]]:
    """Give a function that asks for the body with all the credit there is, and reads nothing."""
    transport = _transport(shop.readers[number], is_clear=shop.is_clear)
    with closing(transport):
        caller = transport.call(address, server_key=shop.server[0])
        poller = transport.poller()
        poller.add(caller)
        while caller.receive() is not CallerEvent.CONNECTED:
            poller.poll(WITHIN_S)
        xids = iter(range(1, 1 << 30))

        def ask() -> None:
            get = Get(next(xids), shop.refs[0].digest, 0, num_bytes, MAX_PIECE_BYTES, 2**31)
            if not caller.send(PEER.encode(get)):
                raise RuntimeError("the stalled reader cannot ask")

        yield ask

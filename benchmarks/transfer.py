"""How fast parameters cross between two processes, beside other ways to bring them over.

    python benchmarks/transfer.py --short     under 3 minutes: the cases that have a bar
    python benchmarks/transfer.py             all sizes, readers and ways: about half an hour
    python benchmarks/transfer.py --short --p2pfl PYTHON --flower PYTHON
                                              they take part too: PYTHON of an environment that
                                              has p2pfl 0.4.4, of one that has flwr 1.42

Server and readers are processes of their own, on loopback. The ways that are compared take turns in
each repetition, so that the machine's moods hit all of them, and each waits a moment, so that it
does not pay for the gigabytes that the one before lets go. Every figure is the median over the
repetitions, and a ratio is the median of ratios within one repetition. One line of JSON for each
case; after them, one line for each bar. Exit code 1 when a bar is not met.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Protocol

from _bars import bar
from _children import Meter, Reading, running
from _ours import Kinfolk, Shop, coded_bytes, make_shop, make_step_shop, stall
from _rivals import HAS_GRPC, GrpcPieces, GrpcStream, GrpcUnary, OneFrame, RawTcp, Way
from _systems import P2pflLike, System

from protocol.steps import STEPS
from protocol.transport.keys import new_identity

MB = 1_000_000
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - in a folder of its own
READERS = 9  # keys that are made; the ninth may stall
STALLED = 8  # its number
ROOM_BYTES = 16 << 20  # a receiver's memory above its buffer
STALL_BYTES = 5 << 20
REST_S = 0.2  # between two turns: a way frees what it allocated after its time was taken
LIKE_P2PFL = "grpc-like-p2pfl"
SYSTEMS = {"p2pfl": "p2pfl 0.4.4", "flower": "flwr 1.42"}

Systems = Mapping[str, str]  # the Python of each, by its name
NONE: Systems = {}


@dataclass(frozen=True)
class Case:
    name: str
    way: Way | System
    num_bytes: int
    readers: int
    security: str = "clear"
    has_stalled: bool = False
    codec: str = "fp32"
    sent_bytes: int = 0  # what travels; `num_bytes` is what it stands for


@dataclass(frozen=True)
class Run:
    """One repetition of one case."""

    seconds: float  # from the first reader's start to the last one's end
    slowest_to_fastest: float
    receiver_extra_bytes: int
    sender_extra_bytes: int
    cpu_s_per_gb: float


class Stage(Protocol):
    """Where one case is played, in processes that stay."""

    def play(self) -> Run: ...


class OwnStage:
    """The processes of one case: a server, its readers, and where asked one that stalls."""

    def __init__(self, case: Case, way: Way, path: Path, stack: ExitStack) -> None:
        self._total_bytes = case.num_bytes * case.readers
        self._server, _ = stack.enter_context(running(_serve, way, path, case.num_bytes))
        address = self._server.recv()
        self._stalled: Connection | None = None
        if case.has_stalled and isinstance(way, Kinfolk):
            asking = running(_stall, way.shop, address, case.num_bytes)
            self._stalled, _ = stack.enter_context(asking)
            self._stalled.recv()
        self._readers = [
            stack.enter_context(running(_read, way, address, case.num_bytes, number))[0]
            for number in range(case.readers)
        ]
        for reader in self._readers:
            reader.recv()  # warm

    def play(self) -> Run:
        if self._stalled is not None:
            self._stalled.send("ask")
            self._stalled.recv()
        self._server.send("reset")
        self._server.recv()
        for reader in self._readers:
            reader.send("go")
        took: list[tuple[float, float, Reading]] = [reader.recv() for reader in self._readers]
        self._server.send("read")
        used: Reading = self._server.recv()
        each = [end - begin for begin, end, _ in took]
        return Run(
            seconds=max(end for _, end, _ in took) - min(begin for begin, _, _ in took),
            slowest_to_fastest=min(each) / max(each),
            receiver_extra_bytes=max(reading.extra_bytes for _, _, reading in took),
            sender_extra_bytes=used.extra_bytes,
            cpu_s_per_gb=(used.cpu_s + sum(reading.cpu_s for _, _, reading in took))
            / (self._total_bytes / 1e9),
        )


class ForeignStage:
    """Another system's own processes."""

    def __init__(self, way: System, path: Path, num_bytes: int, stack: ExitStack) -> None:
        self._num_bytes = num_bytes
        self._bring = stack.enter_context(way.driven(path))
        for _ in range(2):
            self._bring()  # warm

    def play(self) -> Run:
        found = self._bring()
        return Run(
            seconds=found["seconds"],
            slowest_to_fastest=1.0,
            receiver_extra_bytes=int(found["receiver_extra_bytes"]),
            sender_extra_bytes=int(found["sender_extra_bytes"]),
            cpu_s_per_gb=found["cpu_s"] / (self._num_bytes / 1e9),
        )


def _stage(case: Case, path: Path, stack: ExitStack) -> Stage:
    if isinstance(case.way, System):
        return ForeignStage(case.way, path, case.num_bytes, stack)
    return OwnStage(case, case.way, path, stack)


def _serve(pipe: Connection, way: Way, path: Path, num_bytes: int) -> None:
    with way.serve(path, num_bytes) as address:
        pipe.send(address)
        meter = Meter()
        for word in _words(pipe):
            if word == "reset":
                meter.reset()
            pipe.send(meter.read())


def _read(pipe: Connection, way: Way, address: str, num_bytes: int, number: int) -> None:
    with way.reader(address, num_bytes, number) as pull:
        pull()
        pull()  # Kinfolk's reader takes two bodies in turn
        pipe.send("warm")
        meter = Meter()
        for _ in _words(pipe):
            meter.reset()
            begin_s = time.monotonic()
            pull()
            pipe.send((begin_s, time.monotonic(), meter.read()))


def _stall(pipe: Connection, shop: Shop, address: str, num_bytes: int) -> None:
    with stall(shop, address, num_bytes, STALLED) as ask:
        pipe.send("ready")
        for _ in _words(pipe):
            ask()
            pipe.send("asked")


def _words(pipe: Connection) -> Iterator[str]:
    while True:
        try:
            yield pipe.recv()
        except EOFError:
            return


def _rested(stage: Stage) -> Run:
    time.sleep(REST_S)
    return stage.play()


def compare(cases: list[Case], path: Path, repetitions: int) -> dict[Case, list[Run]]:
    """Play all cases in turn, again and again; their processes are there all the time."""
    with ExitStack() as stack:
        stages = [_stage(case, path, stack) for case in cases]
        runs = [[_rested(stage) for stage in stages] for _ in range(repetitions)]
    return {case: [turn[i] for turn in runs] for i, case in enumerate(cases)}


def body(path: Path, num_bytes: int, seed: int) -> Path:
    """A file of so many bytes, none like another's."""
    dice = Random(seed)
    with path.open("wb") as file:
        for at in range(0, num_bytes, 1 << 20):
            file.write(dice.randbytes(min(1 << 20, num_bytes - at)))
    return path


def shapes_of(num_bytes: int) -> list[tuple[int, ...]]:
    """Of 51 matrices of float32, 16 rows each: one has half of all, as an embedding would."""
    elements = num_bytes // 4
    large = elements // 2 // 16 * 16
    small = large // 50 // 16 * 16
    rest = elements - large - 49 * small
    return [(16, size // 16) for size in (large, *[small] * 49, rest)]


def _keys() -> list[tuple[bytes, bytes]]:
    """Raw CURVE keys of all readers, then the server's: public and secret."""
    made = [new_identity() for _ in range(READERS + 1)]
    return [(k.curve_public, k.curve_secret) for k in made]


class Field:
    """Makes the cases of one size."""

    def __init__(self, folder: Path, num_bytes: int, systems: Systems = NONE) -> None:
        self.folder, self.num_bytes = folder, num_bytes
        self._systems = systems
        paths = tuple(body(folder / f"body-{n}-{num_bytes}", num_bytes, n) for n in (1, 2))
        self.path = paths[0]
        self._keys = keys = _keys()
        self._shops: dict[str, Shop] = {
            security: make_shop(
                (paths[0], paths[1]), shapes_of(num_bytes), keys, is_clear=security == "clear"
            )
            for security in ("clear", "curve")
        }

    def ours(self, name: str, readers: int, security: str, **how: bool) -> Case:
        stalled = how.pop("has_stalled", False)
        way = Kinfolk(self._shops[security], self.folder, **how)
        return Case(name, way, self.num_bytes, readers, security, stalled)

    def coded(self, codec: str, security: str) -> Case:
        """One reader, who decodes what came: fewer bytes that stand for as many.

        Steps are carried out by the puller, on what the reader holds, and checked.
        """
        shapes = shapes_of(self.num_bytes)
        num_bytes = coded_bytes(shapes, codec)
        name = f"{codec}-{security}-{self.num_bytes}"
        is_clear = security == "clear"
        if codec in STEPS:
            folder = self.folder / name
            folder.mkdir()
            shop = make_step_shop(folder, shapes, self._keys, is_clear=is_clear, codec=codec)
        else:
            first, second = (body(self.folder / f"{name}-{n}", num_bytes, n) for n in (1, 2))
            shop = make_shop((first, second), shapes, self._keys, is_clear=is_clear, codec=codec)
        way = Kinfolk(shop, self.folder, is_mapped=True)
        return Case("kinfolk", way, self.num_bytes, 1, security, codec=codec, sent_bytes=num_bytes)

    def raw(self, readers: int) -> Case:
        return Case("raw-tcp", RawTcp(), self.num_bytes, readers)

    def streams(self, readers: int) -> list[Case]:
        """What others do in pieces, a stream of them."""
        if not HAS_GRPC:
            return []
        return [
            Case("grpc-bare-stream", GrpcStream(), self.num_bytes, readers),
            Case("grpc-stream", GrpcStream(is_protobuf=True), self.num_bytes, readers),
        ]

    def wholes(self, readers: int, *, short: bool) -> list[Case]:
        """What others do in one message, or with a call for each piece; then whole systems."""
        ways: list[tuple[str, Way | System]] = []
        shapes = tuple(shapes_of(self.num_bytes))
        if HAS_GRPC:
            ways.append((LIKE_P2PFL, P2pflLike(shapes)))
            if not short or self._systems:
                ways.append(("grpc-bare-unary", GrpcUnary()))
                ways.append(("grpc-unary", GrpcUnary(is_protobuf=True)))
                ways.append(("grpc-pieces", GrpcPieces(is_protobuf=True)))
        if not short:
            ways.append(("zmq-one-frame", OneFrame()))
        if readers == 1:
            ways += [(s, System(s, python, shapes)) for s, python in self._systems.items()]
        return [Case(name, way, self.num_bytes, readers) for name, way in ways]


def report(found: dict[Case, list[Run]]) -> None:
    raw = next((runs for case, runs in found.items() if case.name == "raw-tcp"), None)
    for case, runs in found.items():
        ratios = [r.seconds / run.seconds for r, run in zip(raw, runs, strict=True)] if raw else []
        line = {
            "case": case.name,
            "bytes": case.num_bytes,
            "readers": case.readers,
            "security": case.security,
            "codec": case.codec,
            "sent_bytes": case.sent_bytes or case.num_bytes,
            "seconds": round(median(run.seconds for run in runs), 4),
            "ratio_to_raw_tcp": round(median(ratios), 3) if ratios else None,
            "receiver_extra_bytes": int(median(run.receiver_extra_bytes for run in runs)),
            "sender_extra_bytes": int(median(run.sender_extra_bytes for run in runs)),
            "cpu_s_per_gb": round(median(run.cpu_s_per_gb for run in runs), 3),
            "slowest_to_fastest": round(median(run.slowest_to_fastest for run in runs), 3),
        }
        print(json.dumps(line), flush=True)


def ratio(found: dict[Case, list[Run]], one: str, other: str) -> float:
    """Median of `other`'s seconds over `one`'s, by repetition and byte."""

    def of(name: str) -> tuple[int, list[Run]]:
        case = next(c for c in found if c.name == name)
        return case.readers, found[case]

    readers, mine = of(one)
    others, theirs = of(other)
    return median(
        (t.seconds / others) / (m.seconds / readers) for m, t in zip(mine, theirs, strict=True)
    )


def clear_bars(folder: Path, repetitions: int, _systems: Systems) -> list[bool]:
    field = Field(folder, 400 * MB)
    cases = [
        field.raw(1),
        field.ours("kinfolk-unchecked", 1, "clear", is_checked=False),
        field.ours("kinfolk", 1, "clear", is_mapped=True),
    ]
    found = compare(cases, field.path, repetitions)
    report(found)
    extra = max(median(run.receiver_extra_bytes for run in found[case]) for case in cases[1:])
    return [
        bar(
            "400 MB clear, unchecked, of raw TCP",
            ratio(found, "kinfolk-unchecked", "raw-tcp"),
            0.75,
        ),
        bar("400 MB clear, tensors ready, of raw TCP", ratio(found, "kinfolk", "raw-tcp"), 0.45),
        bar("receiver's extra memory, MB", extra / MB, ROOM_BYTES / MB, at_most=True),
    ]


def curve_bars(folder: Path, repetitions: int, systems: Systems) -> list[bool]:
    """Beside streams, and then, in turns of their own, beside what takes ten times as long."""
    field = Field(folder, 400 * MB, systems)
    unchecked = field.ours("kinfolk-unchecked", 1, "curve", is_checked=False)
    ready = field.ours("kinfolk", 1, "curve", is_mapped=True)
    bars: list[bool] = []
    p2pfl = "p2pfl" if "p2pfl" in systems else LIKE_P2PFL
    limits = {"grpc-stream": 0.95, p2pfl: 8.0}
    for ours, theirs in (
        ([unchecked, ready], field.streams(1)),
        ([ready], field.wholes(1, short=True)),
    ):
        found = compare([field.raw(1), *ours, *theirs], field.path, repetitions)
        report(found)
        extra = max(median(run.receiver_extra_bytes for run in found[case]) for case in ours)
        most = ROOM_BYTES / MB
        bars.append(bar("CURVE, receiver's extra memory, MB", extra / MB, most, at_most=True))
        for case in theirs:
            times, name = ratio(found, "kinfolk", case.name), f"CURVE, of {case.name}, clear"
            if case.name in limits:
                bars.append(bar(name, times, limits[case.name]))
            else:
                print(json.dumps({"ratio": name, "found": round(times, 3)}), flush=True)
    return bars


def many_reader_bars(folder: Path, repetitions: int, _systems: Systems) -> list[bool]:
    field = Field(folder, 50 * MB)
    one = field.ours("kinfolk", 1, "clear")
    eight = field.ours("kinfolk", 8, "clear")
    stalled = field.ours("kinfolk-stalled-ninth", 8, "clear", has_stalled=True)
    found = compare([one, eight, stalled], field.path, repetitions)
    report(found)
    runs = found[eight], found[stalled]
    change = abs(1 - median(a.seconds / b.seconds for a, b in zip(*runs, strict=True)))
    extra = [median(run.sender_extra_bytes for run in each) for each in runs]
    named = {replace(one, name="one"): found[one], replace(eight, name="eight"): found[eight]}
    return [
        bar("8 readers' total rate, of one reader's", ratio(named, "eight", "one"), 0.8),
        bar("slowest to fastest", median(r.slowest_to_fastest for r in found[eight]), 0.8),
        bar("change of the rate by a stalled ninth", change, 0.1, at_most=True),
        bar(
            "server's memory for it, MB", (extra[1] - extra[0]) / MB, STALL_BYTES / MB, at_most=True
        ),
    ]


def everything(folder: Path, repetitions: int, systems: Systems) -> None:
    for num_bytes in (1 * MB, 10 * MB, 50 * MB, 400 * MB):
        field = Field(folder, num_bytes, systems)
        for readers in (1, 4, 8):
            cases = [
                field.raw(readers),
                *field.streams(readers),
                *field.wholes(readers, short=False),
                *(field.ours("kinfolk", readers, security) for security in ("clear", "curve")),
            ]
            if readers == 1:
                cases += [
                    field.coded(codec, security)
                    for codec in ("bf16", "int8", *STEPS)
                    for security in ("clear", "curve")
                ]
            report(compare(cases, field.path, repetitions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="only the cases that have a bar")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument(
        "--folder",
        type=Path,
        default=IN_MEMORY if IN_MEMORY.is_dir() else None,
        help="where the bodies lie: in memory, as all rivals receive them, unless told otherwise",
    )
    for name, package in SYSTEMS.items():
        what = f"of an environment that has {package}"
        parser.add_argument(f"--{name}", metavar="PYTHON", help=what)
    args = parser.parse_args()
    missing = [] if HAS_GRPC else ["gRPC: pip install 'kinfolk[bench]'"]
    given: Systems = {name: getattr(args, name) for name in SYSTEMS if getattr(args, name)}
    missing += [f"{name}: --{name} PYTHON" for name in SYSTEMS if name not in given]
    print(json.dumps({"cores": os.cpu_count(), "not_measured": missing}), flush=True)
    steps: list[Callable[[Path, int, Systems], list[bool]]] = [
        clear_bars,
        curve_bars,
        many_reader_bars,
    ]
    met: list[bool] = []
    for step in steps:
        with TemporaryDirectory(dir=args.folder) as folder:
            met += step(Path(folder), args.repetitions, given)
    if not args.short:
        with TemporaryDirectory(dir=args.folder) as folder:
            everything(Path(folder), args.repetitions, given)
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()

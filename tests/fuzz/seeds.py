"""Where the search begins: valid inputs of the targets whose bytes are hard to guess."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from peer.entries import ENTRIES, Finished, written
from peer.plain import to_json
from peer.record import RoundRecord
from peer.work import Published, SnapshotRef
from protocol.joinstring import JoinString
from protocol.wire.digest import digest
from tests.fuzz.files import RUN
from tests.fuzz.speech import CODECS
from tests.golden.wire.test_messages import EXAMPLES

__all__ = ["seeds"]

ROOT = Path(__file__).parents[2]


def seeds(target: str) -> tuple[bytes, ...]:
    """What this target should know from the start."""
    makers: Mapping[str, Iterator[bytes]] = {
        "messages": _messages(),
        "documents": _documents(),
        "journals": _journals(),
        "texts": _texts(),
    }
    return tuple(makers.get(target, iter([bytes(64), bytes(range(256))])))


def _messages() -> Iterator[bytes]:
    for codec, examples in EXAMPLES.values():
        for example in examples:
            yield bytes([CODECS.index(codec)]) + codec.encode(example)
    yield bytes([CODECS.index(ENTRIES)]) + ENTRIES.encode(_finished())


def _documents() -> Iterator[bytes]:
    codec, (manifest, view) = EXAMPLES["documents"]
    yield b"\x01" + codec.encode(manifest)
    yield b"\x00" + codec.encode(view)


def _finished() -> Finished:
    record = RoundRecord(round_no=1, used={}, stale={}, missing=(), refused={})
    ref = SnapshotRef(b"m", digest(b"m"), "state/snapshots/00000001.safetensors", 64)
    published = Published(1, ref, bytes(32), memory=digest(b"memory"))
    return Finished(RUN, 1, published, (), written(record), 1.5, ())


def _journals() -> Iterator[bytes]:
    for entry in (_finished(), _finished().record):
        content = ENTRIES.encode(entry)
        yield b"\x00\x00\x01" + len(content).to_bytes(2) + content
    started = (
        b'{"v":1,"at_s":1,"event":"started","peer":"a","role":"peer","domain":"d","camp":0}\n'
        b'{"v":1,"at_s":1,"event":"round","round":1,"mixed":{"test_accuracy":0.5},"trained":null}\n'
        b'{"v":1,"at_s":1,"event":"alone","solver":"sgd","test_accuracy":null}\n'
    )
    yield b"\x01" + started
    book = {
        "run": RUN.hex(), "run_name": "r", "token": RUN.hex(), "founders": 1, "relays": 0,
        "bind": "", "advertise": "", "incarnation": 1, "options": {"lr": 1}, "settled": True,
        "schema": "", "init": "", "founding": ["a"], "told": [1, 1], "known": [0, 0],
        "entries": [{"name": "a", "role": "peer", "address": "", "curve_key": "", "sign_key": "",
        "instance": "", "superseded": [], "ready": True, "lost": False, "left": False,
        "revoked": False, "token": "", "round_no": 0}],
        "tokens": [{"secret": "", "until_s": 0, "uses": 0, "used": 0, "withdrawn": False}],
    }  # fmt: skip
    yield b"\x02" + to_json(book)


def _texts() -> Iterator[bytes]:
    for path in sorted((ROOT / "deploy" / "examples").glob("*.toml")):
        yield b"\x00" + path.read_bytes()
        yield b"\x01" + path.read_bytes()
    key = "A" * 43 + "="
    yield b'\x02{"format":"kinfolk-key-1","curve_secret":"%b","sign_secret":"%b"}' % (
        key.encode(),
        key.encode(),
    )
    join = JoinString("10.0.0.1", 7733, bytes(32), bytes(32), bytes(16))
    yield b"\x03" + str(join).encode()
    for line in ("solver.lr=0.05", "a='b'", "a=true", "a=1e999", "a=99999999999999999999"):
        yield b"\x04" + line.encode()
    for address in ("10.0.0.1:7733", "[::1]:7", "tcp://host", ":1", "*", "::1"):
        yield b"\x05" + address.encode()
    yield (
        b'\x06{"format":"kinfolk-shard","version":1,"domain":"d","classes":["a"],"source":"s",'
        b'"transform":{"scale":1.0,"mean":[0.0],"std":[1.0]},"camp":0,"naming":[0],"digest":""}'
    )

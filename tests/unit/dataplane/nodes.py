"""What the tests of the data plane's machinery share: keys, bodies, manifests."""

from dataclasses import dataclass
from pathlib import Path

from peer.work import SnapshotRef
from protocol.ids import PeerId
from protocol.transport.memory import MemoryTransport
from protocol.wire.codec import encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import schema_digest
from protocol.wire.messages import Part, SnapshotManifest, TensorSpec

RUN = bytes(16)
A, B = PeerId("a"), PeerId("b")
A_KEY, B_KEY = b"a" * 32, b"b" * 32
NAMES = {A_KEY: A, B_KEY: B}
BODY = bytes(range(256)) * 400  # one tensor
SPECS = (TensorSpec("params", "w", "uint8", (len(BODY),), digest(BODY)),)
SECRET = b"s" * 32  # what a signs with
SCHEMA = schema_digest(SPECS)


@dataclass(frozen=True)
class Nodes:
    a: MemoryTransport
    b: MemoryTransport


def manifest(round_no: int = 1) -> SnapshotManifest:
    return SnapshotManifest(
        run=RUN, sender=A, part=Part.RESULT, round_no=round_no,
        base=b"", memory=b"", degree=1, num_examples=1, num_steps=1,
        nova_a=1.0, lr=0.1, start_loss=1.0, class_counts=(), tensors=SPECS,
    )  # fmt: skip


def published(folder: Path, round_no: int = 1) -> SnapshotRef:
    path = folder / f"round{round_no}"
    path.write_bytes(bytes(64) + BODY)
    encoded = encode_document(manifest(round_no))
    return SnapshotRef(encoded, digest(encoded), str(path), 64)

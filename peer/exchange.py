"""Between what a peer trained and what crosses the wire: snapshots out, contributions in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from peer.checkpoint import hold_snapshot, map_snapshot, write_snapshot
from peer.work import SnapshotRef
from protocol.codecs import Coder
from protocol.ids import PeerId
from protocol.params import Params
from protocol.round import Contribution, Trained
from protocol.tensors import Sections, spec_body
from protocol.wire.digest import digest
from protocol.wire.layout import schema_digest
from protocol.wire.messages import Part, SnapshotManifest, TensorSpec

__all__ = [
    "Origin",
    "content_digest",
    "digest_of",
    "hold_contribution",
    "read_contribution",
    "sections_of",
    "write_contribution",
]

_HUGE_NATS = 1e300  # stands on the wire for a loss that is not finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Whose result of which round, trained from what."""

    run: bytes
    sender: PeerId
    part: Part = Part.RESULT
    round_no: int
    base: bytes  # digest of the start point
    memory: bytes = b""  # of the aggregator's memory there
    degree: int


def sections_of(shared: Trained) -> Sections:
    return {"params": shared.params, "buffers": shared.buffers, "extras": shared.extras}


def digest_of(params: Params) -> bytes:
    """Digest of a point: of its layout and of every tensor's bytes."""
    return content_digest(spec_body({"params": params}))


def content_digest(specs: Sequence[TensorSpec]) -> bytes:
    """Digest of layout and tensors, whoever sent them in whatever run."""
    return digest(schema_digest(specs) + b"".join(spec.digest for spec in specs))


def write_contribution(path: Path, origin: Origin, shared: Trained) -> SnapshotRef:
    """Write what leaves this peer, as the file that will be served.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    return write_snapshot(path, _manifest(origin, shared), sections_of(shared))


def hold_contribution(origin: Origin, shared: Trained) -> tuple[SnapshotRef, int]:
    """Keep what leaves this peer in memory; as `hold_snapshot`."""
    return hold_snapshot(_manifest(origin, shared), sections_of(shared))


def _manifest(origin: Origin, shared: Trained) -> SnapshotManifest:
    return SnapshotManifest(
        run=origin.run,
        sender=origin.sender,
        part=origin.part,
        round_no=origin.round_no,
        base=origin.base,
        memory=origin.memory,
        degree=origin.degree,
        num_examples=shared.num_examples,
        num_steps=shared.num_steps,
        nova_a=shared.nova_a,
        lr=shared.lr,
        start_loss=shared.start_loss if math.isfinite(shared.start_loss) else _HUGE_NATS,
        class_counts=shared.class_counts,
        tensors=spec_body(sections_of(shared)),
    )


def read_contribution(
    ref: SnapshotRef,
    *,
    freshness: float = 1.0,
    device: torch.device | None = None,
    coder: Coder | None = None,
) -> Contribution:
    """A snapshot on disk as a contribution; on the CPU plain tensors are views of the file.

    Args:
        ref: which.
        freshness: 1 when fresh, less when stale.
        device: where its tensors are wanted.
        coder: of the run, for a part that may be coded.

    Raises:
        LayoutError: the file is shorter than its manifest says, or a tensor is not what is shared.
        OSError: it cannot be read.
    """
    manifest, mapped = map_snapshot(ref)
    sections: Sections = mapped
    if coder is not None and manifest.part is Part.RESULT:
        sections = coder.decode(mapped)
    if device is not None and device.type != "cpu":
        sections = {
            section: {name: t.to(device, non_blocking=True) for name, t in tensors.items()}
            for section, tensors in sections.items()
        }
    trained = Trained(
        params=sections["params"],
        buffers=sections["buffers"],
        extras=sections["extras"],
        num_examples=manifest.num_examples,
        num_steps=manifest.num_steps,
        nova_a=manifest.nova_a,
        lr=manifest.lr,
        start_loss=manifest.start_loss,
        class_counts=manifest.class_counts,
    )
    return Contribution(
        sender=PeerId(manifest.sender),
        round_no=manifest.round_no,
        base=manifest.base,
        memory=manifest.memory,
        degree=manifest.degree,
        trained=trained,
        freshness=freshness,
    )

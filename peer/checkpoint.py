"""Snapshots and models on disk: safetensors, written beside and renamed.

A snapshot file is a valid safetensors file whose data begin at a multiple of 64 bytes and whose
tensors each do, by padding entries (`pad.N`) between them: so the same bytes are the file, what
the server sends, and what a receiver maps and uses in place. A neighbour's receive buffer holds the
same body without a header.
"""

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from peer.container import header_of
from peer.durable import drafted
from peer.work import SnapshotRef
from protocol.errors import DataError
from protocol.tensors import Sections, read_body, write_body
from protocol.wire.codec import decode_document, encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import Layout
from protocol.wire.messages import SnapshotManifest

__all__ = ["hold_snapshot", "map_snapshot", "write_model", "write_snapshot"]


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Give a draft beside `path` to write: it takes its place, or goes when something fails.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    try:
        with drafted(path) as draft:
            yield draft
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None


def write_snapshot(path: Path, manifest: SnapshotManifest, sections: Sections) -> SnapshotRef:
    """Write a snapshot whole or not at all.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    with _replacing(path) as draft, draft.open("w+b") as file:
        return _filled(file.fileno(), path, manifest, sections)


def hold_snapshot(manifest: SnapshotManifest, sections: Sections) -> tuple[SnapshotRef, int]:
    """Keep a snapshot in memory, where no disk takes it, as a file that other processes can open.

    Returns:
        Where it is, for as long as this process lives and does not close the descriptor.

    Raises:
        OSError: there is no memory for it.
    """
    descriptor = os.memfd_create("kinfolk-snapshot")
    path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    try:
        return _filled(descriptor, path, manifest, sections), descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _filled(
    descriptor: int, path: Path, manifest: SnapshotManifest, sections: Sections
) -> SnapshotRef:
    layout = Layout.of(manifest.tensors)
    header = header_of(manifest.tensors, layout)
    num_bytes = len(header) + layout.body_bytes
    os.posix_fallocate(descriptor, 0, num_bytes)  # a full disk is told here
    with mmap.mmap(descriptor, num_bytes) as buffer:
        buffer[: len(header)] = header
        with memoryview(buffer) as view, view[len(header) :] as body:
            write_body(sections, manifest.tensors, body)
    encoded = encode_document(manifest)
    return SnapshotRef(encoded, digest(encoded), str(path), len(header))


def map_snapshot(ref: SnapshotRef) -> tuple[SnapshotManifest, dict[str, dict[str, Tensor]]]:
    """A snapshot's tensors as views of its mapped file, which stays mapped while they live.

    The mapping is private: nothing that is done to a tensor reaches the file.

    Raises:
        LayoutError: the file is shorter than the manifest says.
        OSError: the file cannot be read.
    """
    manifest = decode_document(SnapshotManifest, ref.manifest)
    num_bytes = Layout.of(manifest.tensors).body_bytes
    if num_bytes == 0:
        return manifest, read_body(manifest.tensors, memoryview(b""))
    with Path(ref.path).open("rb") as file:
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return manifest, read_body(manifest.tensors, memoryview(buffer)[ref.offset :])


def write_model(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a model as plain safetensors, whole or not at all.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    ready = {name: t.detach().contiguous().cpu().clone() for name, t in tensors.items()}
    content = save(ready, metadata=dict(metadata))  # its own writer hides what the system said
    with _replacing(path) as draft:
        draft.write_bytes(content)

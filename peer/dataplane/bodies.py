"""Bodies of snapshots as mapped files: one to read pieces from, one to put pieces into."""

import mmap
import os
from pathlib import Path

from protocol.errors import LocalProtocolError

__all__ = ["ReceiveBuffer", "ServedBody"]


class ServedBody:
    """The body of a published snapshot. Its file must never change; it may be unlinked.

    The mapping goes when the last piece that was taken of it has left: nothing is to be closed.
    """

    def __init__(self, path: Path, *, offset: int, num_bytes: int) -> None:
        """Map the file.

        Raises:
            LocalProtocolError: the file ends before the body does.
            OSError: it cannot be read.
        """
        self.num_bytes = num_bytes
        self._body = memoryview(b"")
        if num_bytes == 0:
            return  # an empty range cannot be mapped
        with path.open("rb") as file:
            have = os.fstat(file.fileno()).st_size
            if have < offset + num_bytes:
                raise LocalProtocolError(f"{path} has {have} bytes, needs {offset + num_bytes}")
            mapped = mmap.mmap(file.fileno(), offset + num_bytes, access=mmap.ACCESS_READ)
        self._body = memoryview(mapped)[offset:]

    def piece(self, offset: int, num_bytes: int) -> memoryview:
        return self._body[offset : offset + num_bytes]


class ReceiveBuffer:
    """A file of exactly the size of a body, mapped for writing; made or resized as needed."""

    def __init__(self, path: Path, *, num_bytes: int) -> None:
        """Reserve and map the file.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        self.path = path
        self.view = memoryview(bytearray())
        self._mapped: mmap.mmap | None = None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._inode = os.fstat(descriptor).st_ino
            os.ftruncate(descriptor, num_bytes)
            if num_bytes:
                # Blocks are reserved here: with a hole, a full disk would kill the process later.
                os.posix_fallocate(descriptor, 0, num_bytes)
                self._mapped = mmap.mmap(descriptor, num_bytes)
                self.view = memoryview(self._mapped)
        finally:
            os.close(descriptor)

    def fits(self, num_bytes: int) -> bool:
        """Whether it may take another body: a file that is mapped already costs no page faults."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return (
            (status.st_ino, status.st_size)
            == (self._inode, num_bytes)
            == (
                self._inode,
                len(self.view),
            )
        )

    def close(self) -> None:
        """Unmap, unless somebody still reads: then when the last one lets go."""
        try:
            self.view.release()
            if self._mapped is not None:
                self._mapped.close()
        except BufferError:
            self._mapped = None

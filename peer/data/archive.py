"""One `.npz` file, read as if a stranger had made it. Knows zip and npy, must not know shards.

Nothing is unpickled, and nothing is allocated by a length that a header only claims: a claim is
believed when the zip directory and the size of the file on disk say the same.
"""

import ast
import math
import os
import re
import secrets
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from peer.durable import step
from protocol.errors import DataError

__all__ = ["Archive", "Array", "Header", "opened", "replacing", "write_archive"]

Array = npt.NDArray[Any]

MAX_ARRAYS = 256  # in one file
MAX_HEADER_BYTES = 4096  # of one array: a dtype of ours needs about 100
MAX_DIMENSIONS = 8
MAX_ARRAY_BYTES = 1 << 35  # 32 GiB
MAX_DEFLATE_RATIO = 1032  # no deflate stream grows by more: zlib's own bound
_DTYPE = re.compile(r"[<>|][biufU][1-9][0-9]{0,5}")  # numbers and text: what needs no pickle
_VERSIONS = {(1, 0): "<H", (2, 0): "<I", (3, 0): "<I"}  # npy version -> format of header's length


@dataclass(frozen=True, slots=True)
class Header:
    """What an array claims to be, checked against the bytes that are there for it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """The arrays of an open `.npz`; made by `opened`, usable inside its `with`."""

    def __init__(self, path: Path, zipped: zipfile.ZipFile, disk_bytes: int) -> None:
        self.path = path
        self._zip = zipped
        self._members: dict[str, zipfile.ZipInfo] = {}
        infos = zipped.infolist()
        if len(infos) > MAX_ARRAYS:
            raise DataError(f"{path} holds {len(infos)} arrays, at most {MAX_ARRAYS} are read")
        for info in infos:
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in self._members:
                raise DataError(f"{path} is not an .npz file: it holds {info.filename!r}")
            if info.compress_size > disk_bytes or info.file_size > (
                MAX_DEFLATE_RATIO * info.compress_size + MAX_HEADER_BYTES
            ):
                raise DataError(f"{path}: {name!r} claims more bytes than the file can hold")
            self._members[name] = info

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def header(self, name: str) -> Header:
        """Read shape and dtype of an array without its data."""
        with self._stream(name) as stream:
            return self._header(name, stream)

    def array(self, name: str) -> Array:
        """Read one array.

        Returns:
            A read-only view of the bytes read, in the machine's byte order.
        """
        with self._stream(name) as stream:
            header = self._header(name, stream)
            raw = stream.read(header.num_bytes)
        if len(raw) != header.num_bytes:
            raise DataError(f"{self.path} is torn: {name!r} ends too early")
        flat: Array = np.frombuffer(raw, dtype=header.dtype)
        shaped = flat.reshape(header.shape, order="F" if header.is_fortran else "C")
        return shaped.astype(header.dtype.newbyteorder("="), copy=False)

    def _stream(self, name: str) -> IO[bytes]:
        try:
            return self._zip.open(self._members[name])
        except (NotImplementedError, RuntimeError) as error:  # how zipfile says exotic, encrypted
            raise DataError(f"{self.path}: {name!r} cannot be read: {error}") from None

    def _header(self, name: str, stream: IO[bytes]) -> Header:
        try:
            header = _parse_header(stream)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            raise DataError(
                f"{self.path}: the header of {name!r} cannot be read: {error}"
            ) from None
        held = self._members[name].file_size - stream.tell()
        if header.num_bytes != held or header.num_bytes > MAX_ARRAY_BYTES:
            raise DataError(
                f"{self.path}: {name!r} claims shape {header.shape} of {header.dtype}, "
                f"{header.num_bytes} bytes, and holds {held}"
            )
        return header


def _parse_header(stream: IO[bytes]) -> Header:
    """Read an npy header (numpy.lib.format, versions 1 to 3), limits before parsing."""
    magic = stream.read(8)
    if len(magic) != 8 or magic[:6] != b"\x93NUMPY" or (magic[6], magic[7]) not in _VERSIONS:
        raise ValueError("not an npy array of version 1, 2 or 3")
    form = _VERSIONS[magic[6], magic[7]]
    prefix = stream.read(struct.calcsize(form))
    if len(prefix) != struct.calcsize(form):
        raise ValueError("it ends too early")
    (length,) = struct.unpack(form, prefix)
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"it is {length} bytes long, at most {MAX_HEADER_BYTES} are read")
    fields = ast.literal_eval(stream.read(length).decode("utf-8").strip())
    if not isinstance(fields, dict) or fields.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("it is not descr, fortran_order and shape")
    descr, shape = fields["descr"], fields["shape"]
    if not isinstance(descr, str) or not _DTYPE.fullmatch(descr):
        raise ValueError(f"dtype {descr!r} is not plain numbers or text")
    if (
        not isinstance(shape, tuple)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(side) is int and 0 <= side < 1 << 48 for side in shape)
    ):
        raise ValueError(f"shape {shape!r} is not a tuple of counts")
    return Header(shape, np.dtype(descr), bool(fields["fortran_order"]))


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open an `.npz` for reading; whatever is wrong with its bytes leaves as one error.

    Raises:
        DataError: no file, not an `.npz`, torn, or its headers do not agree with its bytes.
    """
    if not path.is_file():
        raise DataError(f"{path} is {'a folder' if path.is_dir() else 'not there'}, not a file")
    try:
        with path.open("rb") as file, _unzipped(path, file) as zipped:
            yield Archive(path, zipped, os.fstat(file.fileno()).st_size)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{path} is torn: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def _unzipped(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise DataError(f"{path} is torn or not an .npz file: {error}") from None


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """Write a file whole or not at all: a temporary file beside it, synced, then renamed.

    Without `sync` that holds for whatever ends the process, but not for a power that fails.

    Raises:
        DataError: the disk is full, or the folder cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            step("write", path)
            with draft.open("xb") as file:
                yield file
                file.flush()
                if sync:
                    step("sync", path)
                    os.fsync(file.fileno())
            step("rename", path)
            draft.replace(path)
        except Exception:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from None


def write_archive(path: Path, arrays: Mapping[str, Array], *, sync: bool = True) -> None:
    """Write an `.npz` that any numpy reads: atomic, uncompressed, equal arrays to equal bytes."""
    with (
        replacing(path, sync=sync) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zipped,
    ):
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # Unix, so that every machine writes the same bytes
            with zipped.open(info, "w", force_zip64=True) as stream:
                plain = np.ascontiguousarray(array).reshape(array.shape)  # a 0-d one stays 0-d
                np.lib.format.write_array(stream, plain, allow_pickle=False)

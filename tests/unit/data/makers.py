"""Small shards and files for the tests of this folder."""

import io
import zipfile
from pathlib import Path

import numpy as np

from peer.data.archive import Array
from peer.data.card import Card
from peer.data.shard import Split, save_shard

CARD = Card(domain="shapes", classes=("a", "b"))


def split(*labels: int) -> Split:
    """One 2x3 RGB image per label; the first pixel says which sample it is."""
    x = np.zeros((len(labels), 2, 3, 3), np.uint8)
    x[:, 0, 0, 0] = np.arange(len(labels))
    return Split(x, np.array(labels, np.int64))


def first_pixels(part: Split) -> list[int]:
    """The byte that each loaded sample stored in its first pixel."""
    return [round(float(image[0, 0, 0] + 1) * 127.5) for image in part.x]


def shard(path: Path, card: Card = CARD) -> Card:
    return save_shard(path, card, {"train": split(0, 1, 1), "val": split(), "test": split(0)})


def repacked(path: Path, **arrays: Array | bytes | None) -> Path:
    """Rewrite members of an `.npz`: arrays, raw member bytes, or None to leave one out."""
    with zipfile.ZipFile(path) as zipped:
        members = {name: zipped.read(name) for name in zipped.namelist()}
    for name, value in arrays.items():
        if value is None:
            del members[f"{name}.npy"]
        elif isinstance(value, bytes):
            members[f"{name}.npy"] = value
        else:
            packed = io.BytesIO()
            np.save(packed, value, allow_pickle=False)
            members[f"{name}.npy"] = packed.getvalue()
    with zipfile.ZipFile(path, "w") as zipped:
        for name, body in members.items():
            zipped.writestr(name, body)
    return path


def npy(header: str, body: bytes = b"") -> bytes:
    """An npy member, version 1, with any header."""
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body

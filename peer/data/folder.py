"""A folder of shards: its manifest, and how it is filled without ever looking complete too soon.

The manifest is written last. Shards are made in `.making` inside the folder, which is also the
lock: while it is there, somebody makes shards or was stopped while doing so.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peer.data.archive import opened, replacing
from peer.data.card import SPLITS
from peer.data.fields import Kind, match_fields, parse_object
from peer.data.shard import CARD
from protocol.errors import DataError
from protocol.ids import peer_id

__all__ = ["MANIFEST", "FolderManifest", "ShardEntry", "filling", "publish", "read_folder"]

MANIFEST = "manifest.json"
HISTOGRAM = "histogram.png"
MAKING = ".making"
FORMAT = "kinfolk-shards"
VERSION = 1
MAX_MANIFEST_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard of a folder."""

    name: str
    digest: str
    domain: str
    camp: int
    counts: Mapping[str, tuple[int, ...]]  # split -> samples of each label

    def num_samples(self, split: str) -> int:
        return sum(self.counts[split])


@dataclass(frozen=True, slots=True)
class FolderManifest:
    """What a folder of shards says of itself.

    `namings[k][i]` is the label that camp k gives to class i; `inputs` maps each file that was read
    to its digest; `recipe` is the version of the code that decides what options mean.
    """

    seed: int
    recipe: int
    options: Mapping[str, Any]
    inputs: Mapping[str, str]
    sources: Mapping[str, str]  # domain -> where its images come from
    classes: tuple[str, ...]
    input_shape: tuple[int, int, int]  # (C, H, W)
    namings: tuple[tuple[int, ...], ...]
    shards: tuple[ShardEntry, ...]

    def text(self) -> str:
        """Write as JSON, one shard on a line."""
        body = {"format": FORMAT, "version": VERSION, **asdict(self)}
        shards = ",\n  ".join(json.dumps(shard) for shard in body.pop("shards"))
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in body.items()]
        return "{\n" + ",\n".join([*lines, f'"shards": [\n  {shards}\n]']) + "\n}\n"


_MANIFEST: Mapping[str, Kind] = {
    "format": Kind(str),
    "version": Kind(int),
    "seed": Kind(int),
    "recipe": Kind(int),
    "options": Kind(dict),
    "inputs": Kind(dict),
    "sources": Kind(dict),
    "classes": Kind(list, str),
    "input_shape": Kind(list, int),
    "namings": Kind(list, list),
    "shards": Kind(list, dict),
}
_SHARD: Mapping[str, Kind] = {
    "name": Kind(str),
    "digest": Kind(str),
    "domain": Kind(str),
    "camp": Kind(int),
    "counts": Kind(dict),
}
_COUNTS: Mapping[str, Kind] = {split: Kind(list, int) for split in SPLITS}


def read_folder(folder: Path) -> FolderManifest:
    """Read the manifest of a folder of shards; the shards themselves are not read.

    Raises:
        DataError: no such folder, not finished, or a manifest that cannot be read.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} has no {MANIFEST}: it is not a finished folder of shards",
            hint="make one: peer data make digits --peers 8 --out shards",
        )
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise DataError(f"{path} has more than {MAX_MANIFEST_BYTES} bytes")
        raw = parse_object(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if (found := (raw.get("format"), raw.get("version"))) != (FORMAT, VERSION):
        raise DataError(f"{path} is of format and version {found}, read is {(FORMAT, VERSION)}")
    fields: dict[str, Any] = match_fields(raw, _MANIFEST, str(path))
    return FolderManifest(
        seed=fields["seed"],
        recipe=fields["recipe"],
        options=fields["options"],
        inputs=fields["inputs"],
        sources=fields["sources"],
        classes=tuple(fields["classes"]),
        input_shape=tuple(fields["input_shape"]),
        namings=tuple(map(tuple, fields["namings"])),
        shards=tuple(_entry(entry, str(path)) for entry in fields["shards"]),
    )


def _entry(raw: object, where: str) -> ShardEntry:
    fields: dict[str, Any] = match_fields(raw, _SHARD, f"{where}: a shard")
    peer_id(fields["name"])  # it becomes a file name: no slash, no leading dot
    counts: dict[str, Any] = match_fields(fields["counts"], _COUNTS, f"{where}: {fields['name']}")
    return ShardEntry(**{**fields, "counts": {s: tuple(n) for s, n in counts.items()}})


@contextmanager
def filling(folder: Path, *, force: bool) -> Iterator[Path]:
    """Lend an empty workspace inside a folder that may be filled; remove it again in any case.

    Raises:
        DataError: the folder holds something and `force` was not given, somebody else fills it, or
            it cannot be written.
    """
    workspace = folder / MAKING
    is_new = not folder.exists()
    try:
        if force:
            shutil.rmtree(workspace, ignore_errors=True)
        elif not is_new:
            _refuse_filled(folder)
        workspace.mkdir(parents=True)
        try:
            yield workspace
        finally:
            shutil.rmtree(workspace, ignore_errors=True)
            if is_new and not any(folder.iterdir()):
                folder.rmdir()
    except OSError as error:
        raise DataError(f"{folder} cannot be filled: {error.strerror or error}") from None


def _refuse_filled(folder: Path) -> None:
    there = sorted(path.name for path in folder.iterdir())
    if MAKING in there:
        raise DataError(
            f"{folder}: somebody makes shards there now, or was stopped while doing so",
            hint="wait, or give --force to begin anew",
        )
    if there:
        shown = ", ".join(there[:4]) + (", ..." if len(there) > 4 else "")
        raise DataError(
            f"{folder} is not empty: it holds {shown}",
            hint="give another --out, or --force to replace its shards and nothing else",
        )


def publish(workspace: Path, manifest: FolderManifest) -> None:
    """Move what was made into the folder, the manifest last; what an older manifest lists goes.

    Everything else in the folder stays.

    Raises:
        DataError: a person's file that is no shard has the name of a new one.
    """
    folder = workspace.parent
    made = {path.name for path in workspace.iterdir()}
    older = _made_earlier(folder)
    for name in sorted(made | {MANIFEST}):
        if name not in older and (folder / name).exists() and not _is_shard(folder / name):
            raise DataError(
                f"{folder / name} is not of Kinfolk's making, and stays", hint="move it away"
            )
    (folder / MANIFEST).unlink(missing_ok=True)
    for name in older - made:
        (folder / name).unlink(missing_ok=True)
    for name in sorted(made):
        (workspace / name).replace(folder / name)
    with replacing(folder / MANIFEST) as file:
        file.write(manifest.text().encode())


def _made_earlier(folder: Path) -> set[str]:
    """Name the files of an earlier make; what is no shard any more is a person's."""
    try:
        shards = {f"{shard.name}.npz" for shard in read_folder(folder).shards}
    except DataError:
        return set()
    return {name for name in shards if _is_shard(folder / name)} | {MANIFEST, HISTOGRAM}


def _is_shard(path: Path) -> bool:
    try:
        with opened(path) as archive:
            return CARD in archive
    except DataError:
        return False

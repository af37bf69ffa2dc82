"""Shards as tables for a terminal, and which of their images a contact sheet shows."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from peer.data.archive import Array
from peer.data.card import SPLITS
from peer.data.domain import Pixels
from peer.data.folder import ShardEntry
from peer.data.shard import Split

__all__ = ["folder_table", "missing_classes", "said", "samples_by_label", "shard_table"]

MAX_NAME = 8  # characters of a class's name above its column
MAX_MISSING = 11  # characters of names of missing classes; more are counted


def folder_table(shards: Sequence[ShardEntry], classes: Sequence[str], *, width: int) -> Table:
    """List shards: domain, camp, samples per split, training samples per label, labels missing.

    Labels get a column each where `width`, in characters, has room for that; those that are missing
    are named where it has room for that too.
    """
    has_camps = any(shard.camp for shard in shards)
    counts = [shard.counts["train"] for shard in shards]
    top = max(max(row) for row in counts)
    names = max(len(f"{shard.name} {shard.domain} ") for shard in shards)
    room = width - names - len("train  val test ") - len("camp ") * has_camps
    is_wide = _labels_fit(classes, top, room)
    is_missing = any(0 in row for row in counts) and (
        not is_wide or _labels_fit(classes, top, room - MAX_MISSING)
    )
    table = _table(["shard", "domain", *(["camp"] if has_camps else [])], [*SPLITS])
    _add_labels(table, classes, is_wide=is_wide, is_missing=is_missing)
    for shard, row in zip(shards, counts, strict=True):
        table.add_row(
            shard.name,
            shard.domain,
            *([str(shard.camp)] if has_camps else []),
            *(_size(shard.num_samples(split)) for split in SPLITS),
            *_cells(row, classes, top, is_wide=is_wide, is_missing=is_missing),
        )
    return table


def shard_table(shard: ShardEntry, classes: Sequence[str], *, width: int) -> Table:
    """List one shard's splits: samples, samples per label, labels missing."""
    top = max(max(counts) for counts in shard.counts.values())
    is_wide = _labels_fit(classes, top, width - len("split samples ") - MAX_MISSING)
    table = _table(["split"], ["samples"])
    _add_labels(table, classes, is_wide=is_wide, is_missing=True)
    for split in SPLITS:
        cells = _cells(shard.counts[split], classes, top, is_wide=is_wide, is_missing=True)
        table.add_row(split, _size(shard.num_samples(split)), *cells)
    return table


def said(shard: ShardEntry) -> str:
    """Name a shard with its domain, and its camp where it renames classes."""
    return f"{shard.name}  {shard.domain}" + (f"  camp {shard.camp}" if shard.camp else "")


def missing_classes(counts: Sequence[int], classes: Sequence[str]) -> list[str]:
    """Name the classes without a sample."""
    return [name for name, count in zip(classes, counts, strict=True) if not count]


def samples_by_label(split: Split, num_classes: int, limit: int) -> list[list[Pixels]]:
    """Pick up to `limit` of the first images of each label, as uint8."""
    picked = [np.flatnonzero(split.y == label)[:limit] for label in range(num_classes)]
    return [[_seen(split.x[row]) for row in rows] for rows in picked]


def _seen(image: Array) -> Pixels:
    """Stretch floats over 0 to 255; uint8 stays."""
    if image.dtype == np.uint8:
        return image
    low, high = float(image.min()), float(image.max())
    stretched: Pixels = np.rint((image - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return stretched


def _labels_fit(classes: Sequence[str], top: int, width: int) -> bool:
    cells = [max(len(str(top)), len(name[:MAX_NAME])) + 1 for name in classes]
    return sum(cells) <= width


def _table(names: list[str], sizes: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in sizes:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _add_labels(table: Table, classes: Sequence[str], *, is_wide: bool, is_missing: bool) -> None:
    for name in classes if is_wide else ["per label"]:
        table.add_column(name[:MAX_NAME] if is_wide else name, justify="right", no_wrap=True)
    if is_missing:
        table.add_column("missing", overflow="ellipsis", no_wrap=True)


def _cells(
    counts: Sequence[int], classes: Sequence[str], top: int, *, is_wide: bool, is_missing: bool
) -> list[Text]:
    """Show counts per label, and the labels without a sample."""
    if is_wide:
        cells = [Text(str(count), style=_shade(count / max(top, 1))) for count in counts]
    else:
        low, high = min(counts), max(counts)
        cells = [Text(str(low) if low == high else f"{low} to {high}")]
    if is_missing:
        cells.append(_missing(counts, classes))
    return cells


def _shade(fraction: float) -> str:
    """Colour a cell by how full it is."""
    if fraction == 0:
        return "bold red"
    shade = [round(255 + (end - 255) * 0.75 * fraction) for end in (30, 100, 160)]
    return f"black on rgb({shade[0]},{shade[1]},{shade[2]})"


def _size(count: int) -> Text:
    return Text(str(count), style="" if count else "bold red")


def _missing(counts: Sequence[int], classes: Sequence[str]) -> Text:
    names = missing_classes(counts, classes)
    if not names:
        return Text("-", style="dim")
    listed = " ".join(names)
    if len(listed) > MAX_MISSING:
        listed = f"{len(names)} of {len(classes)}"
    return Text(listed, style="red")

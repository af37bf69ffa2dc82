"""Pictures of shards: how many samples of which class each has, and what they look like.

Needs matplotlib (the extra `digits`). No pyplot: no global state, no display.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from peer.data.archive import replacing
from peer.data.domain import Pixels, missing_extra
from peer.data.folder import ShardEntry
from peer.data.listing import said

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError:
    raise missing_extra("matplotlib") from None

__all__ = ["draw_contact_sheet", "draw_histogram"]

DOTS_PER_INCH = 130
INK = "#22303c"
FAINT = "#8a97a3"
SPLIT_COLOURS = {"train": "#2b6a99", "val": "#f0a540", "test": "#a9c3d3"}
MAX_NUMBERED = 24  # classes: with more, cells are too narrow for their counts
GAP = 2  # pixels between images of a contact sheet
CELL_INCHES = 0.5  # of one image and its gap
MAX_INCHES = 40.0  # of the rows together
MAX_SAID = 80  # shards: with more, rows are too low for names and counts


def draw_histogram(shards: Sequence[ShardEntry], classes: Sequence[str], path: Path) -> None:
    """Draw training samples per shard and label as a heat map, and the sizes of all splits."""
    num_shards, is_said = len(shards), len(shards) <= MAX_SAID
    map_inches = min(max(4.0, 0.5 * len(classes)), 14.0)
    height_inches = min(num_shards * (0.36 if is_said else 0.06), MAX_INCHES) + 1.5
    figure = Figure(figsize=(map_inches + 5.5, height_inches), dpi=DOTS_PER_INCH)
    figure.set_layout_engine("constrained")
    heat, sizes = figure.subplots(1, 2, sharey=True, width_ratios=[map_inches, 3.2])
    _draw_heat(heat, np.array([shard.counts["train"] for shard in shards]), classes)
    _draw_sizes(sizes, shards)
    names = [said(shard) for shard in shards] if is_said else []
    heat.set_yticks(range(len(names)), names, color=INK)
    heat.set_ylim(num_shards - 0.5, -0.5)
    _save(figure, path)


def _draw_heat(axes: Axes, counts: npt.NDArray[np.int64], classes: Sequence[str]) -> None:
    """Draw (shards, classes) counts, each with its number where there is room for it."""
    num_shards, num_classes = counts.shape
    top = max(1, int(counts.max()))
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=1.35 * top, aspect="auto")
    is_numbered = num_classes <= MAX_NUMBERED and num_shards <= MAX_SAID
    for row, label in np.ndindex(counts.shape) if is_numbered else ():
        count = int(counts[row, label])
        colour = "white" if count > 0.7 * top else INK if count else FAINT
        axes.text(label, row, str(count), ha="center", va="center", color=colour, fontsize=8)
    if is_numbered:
        axes.set_xticks(np.arange(-0.5, num_classes), minor=True)
        axes.set_yticks(np.arange(-0.5, num_shards), minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
    if num_classes <= MAX_NUMBERED:
        is_long = max(map(len, classes)) > 2
        axes.set_xticks(range(num_classes), classes, color=INK, rotation=35 if is_long else 0)
    axes.set_title("training samples per label", color=INK, fontsize=10, loc="left")
    _undress(axes)


def _draw_sizes(axes: Axes, shards: Sequence[ShardEntry]) -> None:
    """Draw one bar per shard, its splits end to end."""
    start = np.zeros(len(shards))
    for split, colour in SPLIT_COLOURS.items():
        sizes = np.array([shard.num_samples(split) for shard in shards])
        axes.barh(range(len(shards)), sizes, left=start, color=colour, height=0.72, label=split)
        start += sizes
    axes.set_xlim(0, 1.02 * start.max())
    axes.set_title("samples", color=INK, fontsize=10, loc="left")
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=8,
        handlelength=1.0, columnspacing=1.0, borderpad=0.0, labelcolor=INK,
    )  # fmt: skip
    _undress(axes)


def _undress(axes: Axes) -> None:
    axes.spines[:].set_visible(False)
    axes.tick_params(which="both", length=0, colors=INK, labelsize=8.5)


def draw_contact_sheet(
    rows: Sequence[tuple[str, Sequence[Pixels | None]]],
    columns: Sequence[str],
    title: str,
    path: Path,
) -> None:
    """Draw sample images in a grid.

    A row is its name and one (H, W, C) image for each column, None where there is none; a row may
    be shorter than `columns`, which may be empty.
    """
    shape = next(image.shape for _, images in rows for image in images if image is not None)
    height, width = shape[0] + GAP, shape[1] + GAP
    num_columns = max(len(images) for _, images in rows)
    sheet = np.full((len(rows) * height + GAP, num_columns * width + GAP, 3), 255, np.uint8)
    for row, (_, images) in enumerate(rows):
        for column, image in enumerate(images):
            if image is not None:
                top, left = row * height + GAP, column * width + GAP
                sheet[top : top + shape[0], left : left + shape[1]] = image[
                    ..., : 3 if shape[2] >= 3 else 1
                ]
    inches = CELL_INCHES / width
    size = (sheet.shape[1] * inches + 2.2, sheet.shape[0] * inches + 0.9)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.imshow(sheet, interpolation="nearest")
    centres = (np.arange(max(len(rows), num_columns)) + 0.5) * np.array(
        [[height], [width]]
    ) + GAP / 2
    axes.set_yticks(centres[0][: len(rows)], [name for name, _ in rows])
    axes.set_xticks(centres[1][: len(columns)], columns)
    if max(map(len, columns), default=0) > 5:
        axes.tick_params("x", labelrotation=35)
        for name in axes.get_xticklabels():
            name.set(horizontalalignment="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_title(title, color=INK, fontsize=10, loc="left")
    _undress(axes)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as file:
        figure.savefig(
            file, format="png", bbox_inches="tight", pad_inches=0.12, metadata={"Software": None}
        )

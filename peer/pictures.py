"""A run as pictures: accuracy over the rounds, and who helped whom. Needs matplotlib.

matplotlib is imported when a picture is asked for: it is an extra, and slow to start.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from peer.affinity import Affinity
from peer.data.archive import replacing
from peer.past import PastPeer
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_curves", "draw_influence", "figure_at"]

Floats = npt.NDArray[np.float64]

INK, FAINT, PAPER = "#22262b", "#8b929a", "#ffffff"
OWN = "#eceef0"  # cells of the diagonal
SHARES = ("#3c4a94", "#98a5d6", "#f7f6f3", "#f0ad68", "#b9540f")  # none, 1, most
# of Okabe and Ito, told apart with every kind of colour vision
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
ALONE_NAMES = {"sgd": "alone, SGD", "same": "alone, same solver"}
ALONE_DASHES: Mapping[str, Any] = {"sgd": (0, (1.5, 2)), "same": (0, (5, 2))}
LABELLED_CELLS = 16  # peers up to which each cell shows its number
NAMED_PEERS = 64  # up to which each row shows its name
MAX_SIDE_IN = 20.0  # of the influence map
DOTS_PER_IN = 150.0
MAX_SIDE_DOTS = 1800.0  # of the influence map, which costs memory by its area
_STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
    "svg.hashsalt": "kinfolk",
}


@contextmanager
def figure_at(
    path: Path, width_in: float, height_in: float, dots_per_in: float = DOTS_PER_IN
) -> Iterator["Figure"]:
    """Make a figure and write it whole; equal runs give equal bytes.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        # slow to start, and only there with an extra
        from matplotlib import rc_context  # noqa: PLC0415
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "pictures need matplotlib", hint="pip install 'kinfolk[digits]'"
        ) from None
    with rc_context(_STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained", dpi=dots_per_in)
        FigureCanvasAgg(figure)
        yield figure
        with replacing(path) as file:
            figure.savefig(file, format="png", metadata={"Software": None})


# -- accuracy -----------------------------------------------------------------------------------


def draw_curves(path: Path, peers: Sequence[PastPeer], *, title: str) -> None:
    """Draw each peer's accuracy over the rounds, as mixed and as trained, and their means.

    Raises:
        ConfigError: matplotlib is not installed.
        DataError: the file cannot be written.
    """
    domains = sorted({peer.domain for peer in peers})
    colours = {domain: PALETTE[n % len(PALETTE)] for n, domain in enumerate(domains)}
    with figure_at(path, 11.0, 4.8) as figure:
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, kind, says in zip(
            panels,
            ("mixed", "trained"),
            ("as mixed from the neighbours", "after a round on its own data"),
            strict=True,
        ):
            _draw_panel(axes, kind, peers, colours)
            axes.set_title(says, fontsize=11, color=INK)
            axes.set_xlabel("round")
        panels[0].set_ylabel("accuracy on the own test split, %")
        handles, labels = panels[1].get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(
            unique.values(), unique.keys(), loc="outside right center", frameon=False, fontsize=9
        )
        figure.suptitle(title, fontsize=13, fontweight="bold")


def _draw_panel(
    axes: "Axes", kind: str, peers: Sequence[PastPeer], colours: Mapping[str, str]
) -> None:
    curves = {
        peer.name: dict(zip(peer.rounds.tolist(), getattr(peer, kind), strict=True))
        for peer in peers
    }
    for peer in sorted(peers, key=lambda peer: (peer.domain, peer.camp, peer.name)):
        axes.plot(
            peer.rounds,
            100.0 * getattr(peer, kind),
            color=colours[peer.domain],
            linewidth=1.1,
            alpha=0.55,
            linestyle="-" if peer.camp % 2 == 0 else (0, (4, 1.5)),
            label=f"{peer.domain}, camp {peer.camp}",
        )
    rounds = sorted({number for curve in curves.values() for number in curve})
    means = [
        np.mean([curve[number] for curve in curves.values() if number in curve])
        for number in rounds
    ]
    axes.plot(rounds, 100.0 * np.array(means), color=INK, linewidth=2.6, label="mean of the peers")
    for solver, name in ALONE_NAMES.items():
        alone = [peer.alone[solver] for peer in peers if solver in peer.alone]
        if alone:
            axes.axhline(
                100.0 * float(np.mean(alone)),
                color=INK,
                linewidth=1.3,
                linestyle=ALONE_DASHES[solver],
                label=f"{name}: mean",
            )
    axes.grid(axis="y", color="#e3e6e9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)


# -- influence ----------------------------------------------------------------------------------


def draw_influence(path: Path, whole: Affinity, *, title: str) -> None:
    """Draw who was helped by whom: rows ask, columns answer, 1 is an equal share.

    Raises:
        ConfigError: matplotlib is not installed.
        DataError: the file cannot be written.
    """
    num_peers = len(whole.peers)
    side = min(2.6 + 0.52 * max(num_peers, 6), MAX_SIDE_IN)
    with figure_at(path, side + 1.5, side, min(DOTS_PER_IN, MAX_SIDE_DOTS / side)) as figure:
        # as in figure_at
        from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm  # noqa: PLC0415

        others = np.ma.masked_invalid(np.where(np.eye(num_peers, dtype=bool), np.nan, whole.cells))
        largest = float(others.max()) if others.count() else 1.0
        norm = TwoSlopeNorm(1.0, vmin=0.0, vmax=max(2.0, largest))
        axes = figure.subplots()
        colours = LinearSegmentedColormap.from_list("share", SHARES).with_extremes(bad=OWN)
        image = axes.imshow(others, cmap=colours, norm=norm)
        if num_peers <= LABELLED_CELLS:
            _write_cells(axes, whole.cells, lambda value: colours(norm(value)))
        _name_peers(axes, whole)
        _part_camps(axes, whole.camps)
        bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("peers x weight in the mix:  1 is an equal share")
        axes.set_xlabel("the neighbour that gives")
        axes.set_ylabel("the peer that is helped")
        figure.suptitle(title, fontsize=13, fontweight="bold")


def _write_cells(axes: "Axes", cells: Floats, colour: Any) -> None:  # noqa: ANN401 - a colour map
    for (row, column), value in np.ndenumerate(cells):
        if not np.isfinite(value):
            continue
        own = row == column
        red, green, blue, _ = colour(value)
        bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5  # ITU-R BT.601 luma
        axes.text(
            column,
            row,
            f"{value:.2f}" if value < 10.0 else f"{value:.0f}",
            ha="center",
            va="center",
            fontsize=8.5,
            fontstyle="italic" if own else "normal",
            color=FAINT if own else INK if bright else PAPER,
        )


def _name_peers(axes: "Axes", whole: Affinity) -> None:
    for spine in axes.spines.values():
        spine.set_visible(False)
    if len(whole.peers) > NAMED_PEERS:
        return
    names = [f"{peer}\n{domain}" for peer, domain in zip(whole.peers, whole.domains, strict=True)]
    places = range(len(names))
    axes.set_xticks(places, names, fontsize=8, rotation=90 if len(names) > 10 else 0)
    axes.set_yticks(places, names, fontsize=8)
    axes.tick_params(length=0)


def _part_camps(axes: "Axes", camps: Sequence[int]) -> None:
    """Draw a gap between camps, and name each above its columns."""
    start = 0
    for camp, members in groupby(camps):
        end = start + len(list(members))
        if len(set(camps)) > 1:
            axes.text(
                (start + end - 1) / 2, -0.62, f"camp {camp}", ha="center", va="bottom", fontsize=9.5
            )
        if end < len(camps):
            gap = 6 if len(camps) <= NAMED_PEERS else 1.5
            axes.axhline(end - 0.5, color=PAPER, linewidth=gap)
            axes.axvline(end - 0.5, color=PAPER, linewidth=gap)
        start = end

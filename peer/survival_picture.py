"""A run under faults as a picture: what each peer did in each round, and what came of it.

Rows are peers. Along the rounds where all faults are given in rounds, else along time. Faults are
shaded across both panels. Needs matplotlib, as pictures.py does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peer.pictures import FAINT, INK, NAMED_PEERS, PALETTE, PAPER, figure_at
from peer.survival import Played, Survival, Survivor, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_survival"]

FRESH, STALE, LACKING, AWAY, WAIT = "#3f7f6e", "#e9b44c", "#c8553d", "#d5d9de", "#b9d4cc"
SHADES = ("#5b6b8c", "#8c6b5b", "#6b8c5b", "#7d5b8c", "#5b8c8a", "#8c875b")  # of faults
SHADE = 0.13
LANE = 0.72  # height of a cell; the rows are 1 apart
TICKS = 30  # rounds up to which each has a tick
_SHOWN_BY_LANES = ("leave", "join")
_ALWAYS = 0.98  # share of the run from which a fault is no shade: it would say nothing


def draw_survival(path: Path, survival: Survival) -> None:
    """Draw the timeline of peers and rounds, faults shaded, and their accuracy under it.

    Raises:
        ConfigError: matplotlib is not installed.
        DataError: the file cannot be written.
    """
    num_peers = len(survival.peers)
    rows_in = min(0.34 * num_peers, 14.0) + 0.5
    with figure_at(path, 11.0, rows_in + 4.4) as figure:
        lanes, curves = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [max(rows_in, 1.4), 2.7]}
        )
        end = _end(survival)
        shaded = [w for w in survival.windows if _is_shaded(w, survival, end)]
        for axes in (lanes, curves):
            _shade(axes, shaded, survival, end)
        _draw_lanes(lanes, survival)
        _name_faults(lanes, shaded, survival, end)
        _draw_curves(curves, survival)
        curves.set_xlabel("seconds since round 1 began" if survival.in_seconds else "round")
        curves.set_xlim(_begin(survival), end + (0.01 * end if survival.in_seconds else 0.0))
        if not survival.in_seconds and survival.rounds <= TICKS:
            curves.set_xticks(range(1, survival.rounds + 1))
        figure.suptitle(_title(survival, shaded), fontsize=13, fontweight="bold")


def _title(survival: Survival, shaded: Sequence[Window]) -> str:
    """Name the run, and in a line of its own what lasted so long that no shade shows it."""
    title = f"{survival.run}: {len(survival.peers)} peers, {survival.rounds} rounds under faults"
    rest = [w.what for w in survival.windows if w not in shaded and w.kind not in _SHOWN_BY_LANES]
    return f"{title}\nthroughout: {', '.join(rest)}" if rest else title


def _begin(survival: Survival) -> float:
    return 0.0 if survival.in_seconds else 0.5


def _end(survival: Survival) -> float:
    if not survival.in_seconds:
        return survival.rounds + 0.5
    return max((p.end_s for peer in survival.peers for p in peer.rounds), default=1.0)


def _interval(window: Window, survival: Survival, end: float) -> tuple[float, float]:
    """Where a window lies on the x axis; what is in rounds has no place on one of time."""
    if not survival.in_seconds:
        return window.begin - 0.5, end if window.end is None else window.end - 0.5
    if window.unit == "seconds":
        return window.begin, end if window.end is None else window.end
    inside = [
        play
        for peer in survival.peers
        for play in peer.rounds
        if window.begin <= play.round_no < (window.end or np.inf)
    ]
    if not inside:
        return 0.0, 0.0
    return min(p.begin_s for p in inside), max(p.end_s for p in inside)


def _is_shaded(window: Window, survival: Survival, end: float) -> bool:
    if window.kind in _SHOWN_BY_LANES:
        return False
    begin, until = _interval(window, survival, end)
    return until > begin and (until - begin) < _ALWAYS * (end - _begin(survival))


def _shade(axes: "Axes", windows: Sequence[Window], survival: Survival, end: float) -> None:
    for number, window in enumerate(windows):
        begin, until = _interval(window, survival, end)
        axes.axvspan(begin, until, color=SHADES[number % len(SHADES)], alpha=SHADE, linewidth=0)


def _name_faults(axes: "Axes", windows: Sequence[Window], survival: Survival, end: float) -> None:
    """Write each fault above its shade, in as many lines as keep them apart."""
    ends: list[float] = []  # of the text in each line
    for number, window in enumerate(windows):
        begin, until = _interval(window, survival, end)
        text = window.what if len(window.what) <= 60 else f"{window.what[:57]}..."
        width = max(until - begin, len(text) * end / 125)
        line = next((n for n, taken in enumerate(ends) if taken <= begin), len(ends))
        ends[line : line + 1] = [begin + width]
        axes.annotate(
            text,
            xy=(begin, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 5 + 12 * line),
            textcoords="offset points",
            fontsize=8.5,
            color=SHADES[number % len(SHADES)],
            annotation_clip=False,
        )
        axes.plot(
            [begin, until],
            [1.0, 1.0],
            transform=axes.get_xaxis_transform(),
            color=SHADES[number % len(SHADES)],
            linewidth=2.0,
            clip_on=False,
        )


# -- lanes --------------------------------------------------------------------------------------


def _draw_lanes(axes: "Axes", survival: Survival) -> None:
    for row, peer in enumerate(survival.peers):
        for play in peer.rounds:
            _draw_round(axes, row, play, in_seconds=survival.in_seconds)
        if not survival.in_seconds:
            _draw_away(axes, row, peer, survival.rounds)
    num_peers = len(survival.peers)
    axes.set_ylim(num_peers - 0.45, -0.55)
    names = [peer.name for peer in survival.peers] if num_peers <= NAMED_PEERS else []
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _explain(axes, survival)


def _draw_round(axes: "Axes", row: int, play: Played, *, in_seconds: bool) -> None:
    """One bar: parted from top to bottom as the neighbours' results were, after the wait."""
    left, width = play.round_no - 0.46, 0.92
    if in_seconds:
        left = play.begin_s + play.waited_s
        width = play.end_s - left
        _bar(axes, row, WAIT, play.begin_s, play.waited_s)
    _bar(axes, row, FRESH, left, width)
    if not play.missed:
        return
    asked = len(play.missed) + play.num_fresh
    lacking = sum(not one.age for one in play.missed)
    for colour, count in ((STALE, len(play.missed)), (LACKING, lacking)):
        if count:
            _bar(axes, row, colour, left, width, share=count / asked)


def _bar(
    axes: "Axes", row: int, colour: str, left: float, width: float, share: float = 1.0
) -> None:
    """Fill a share of a cell, from its bottom."""
    place = row + LANE * (1.0 - share) / 2
    axes.barh(
        place, width, left=left, height=LANE * share, color=colour, edgecolor=PAPER, linewidth=0.6
    )


def _draw_away(axes: "Axes", row: int, peer: Survivor, rounds: int) -> None:
    played = {play.round_no for play in peer.rounds}
    for number in sorted(set(range(1, rounds + 1)) - played):
        axes.barh(row, 0.92, left=number - 0.46, height=LANE, color=PAPER, edgecolor=AWAY,
                  hatch="////", linewidth=0.8)  # fmt: skip


def _explain(axes: "Axes", survival: Survival) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - as in pictures.py

    shown = [
        Patch(color=FRESH, label="fresh results"),
        Patch(color=STALE, label="older ones in their place"),
        Patch(color=LACKING, label="nothing in their place"),
    ]
    if survival.in_seconds:
        shown.append(Patch(color=WAIT, label="waiting"))
    else:
        shown.append(Patch(facecolor=PAPER, edgecolor=AWAY, hatch="////", label="not played"))
    axes.legend(
        handles=shown,
        loc="upper left",
        bbox_to_anchor=(1.005, 1.0),
        frameon=False,
        fontsize=8.5,
        title="neighbours of a round",
        title_fontsize=8.5,
        alignment="left",
    )


# -- accuracy -----------------------------------------------------------------------------------


def _draw_curves(axes: "Axes", survival: Survival) -> None:
    for number, peer in enumerate(survival.peers):
        known = [play for play in peer.rounds if play.accuracy is not None]
        axes.plot(
            [play.end_s if survival.in_seconds else play.round_no for play in known],
            [100.0 * (play.accuracy or 0.0) for play in known],
            color=PALETTE[number % len(PALETTE)],
            linewidth=1.2,
            alpha=0.6,
            marker="o",
            markersize=2.6,
            label=peer.name,
        )
    means = _means(survival)
    axes.plot(list(means), [100.0 * v for v in means.values()], color=INK, linewidth=2.6,
              label="mean of the peers")  # fmt: skip
    axes.set_ylabel("accuracy of the served model\non the own test split, %")
    axes.grid(axis="y", color="#e3e6e9", linewidth=0.8)
    axes.set_axisbelow(True)
    if len(survival.peers) <= 12:
        axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False, fontsize=8.5)
    axes.spines["left"].set_color(FAINT)


def _means(survival: Survival) -> Mapping[float, float]:
    """Mean of what each peer serves after each round, or at each instant: its newest model."""
    steps: list[tuple[float, int, float]] = []
    for number, peer in enumerate(survival.peers):
        for play in peer.rounds:
            if play.accuracy is not None:
                at = play.end_s if survival.in_seconds else float(play.round_no)
                steps.append((at, number, play.accuracy))
    newest: dict[int, float] = {}
    means: dict[float, float] = {}
    for at, number, accuracy in sorted(steps):
        newest[number] = accuracy
        means[at] = float(np.mean(list(newest.values())))
    return means

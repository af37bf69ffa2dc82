"""The survival report of a run: tables for a person, survival.json and survival.png for later."""

from collections import Counter, defaultdict

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from peer.experiment import Experiment
from peer.launch.directory import RunDirectory
from peer.survival import Survival, Survivor, Window, survival_of, write_survival
from peer.survival_picture import draw_survival
from protocol.errors import OperatorError

__all__ = ["report_survival"]

MAX_LINES = 24  # that say who was missing


def report_survival(
    experiment: Experiment, directory: RunDirectory, *, progress: Console, result: Console
) -> None:
    """Say how the run came through its faults; nothing where the experiment has none.

    Raises:
        DataError: a file cannot be read or written.
    """
    if not experiment.faults:
        return
    run = experiment.settings.run
    survival = survival_of(
        directory.root,
        experiment.faults,
        run=experiment.name,
        seed=run.seed,
        rounds=run.rounds,
    )
    write_survival(directory.survival, survival)
    try:
        draw_survival(directory.survival_picture, survival)
    except OperatorError as error:
        progress.print(f"No picture: {error}", highlight=False, markup=False)
    for shown in (_peers(survival), _windows(survival)):
        result.print()
        result.print(shown)
    for line in _missing_lines(survival):
        result.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE, padding=0,
        show_edge=False, highlight=False,
    )  # fmt: skip


def _peers(survival: Survival) -> Table:
    shown = _table("How the peers came through")
    shown.add_column("peer", no_wrap=True)
    titles = ("rounds\nfinished", "of them\ndegraded", "sat\nout", "skipped", "starts")
    for title in (*titles, "waited\ns", "of it\nin vain", "stale\nused", "nothing\nused", "MB"):
        shown.add_column(title, justify="right", no_wrap=True)
    shown.add_column("  ended", no_wrap=True)
    for peer in survival.peers:
        shown.add_row(
            peer.name,
            str(peer.rounds_finished),
            Text(str(peer.rounds_degraded), style="yellow" if peer.rounds_degraded else ""),
            str(len(peer.sat_out)),
            str(len(peer.skipped)),
            Text(str(peer.starts), style="yellow" if peer.starts > 1 else ""),
            f"{peer.waited_s:.1f}",
            f"{peer.lost_s:.1f}",
            str(sum(peer.stale.values())),
            str(peer.nothing),
            f"{peer.pulled_bytes / 1e6:.1f}",
            f"  {peer.finished or 'without a word'}",
        )
    return shown


def _windows(survival: Survival) -> Table:
    shown = _table("Faults, and the mean accuracy of the model that a peer serves")
    shown.add_column("fault")
    shown.add_column("when", no_wrap=True)
    for title in ("before", "during", "at the end,\nif after"):
        shown.add_column(title, justify="right", no_wrap=True)
    for window in survival.windows:
        shown.add_row(
            window.what,
            f"  {_when(window)}",
            *(_percent(value) for value in (window.before, window.during, window.after)),
        )
    return shown


def _when(window: Window) -> str:
    if window.unit == "rounds":
        first = f"{window.begin:.0f}"
        if window.end is None:
            return f"from round {first}"
        last = f"{window.end - 1:.0f}"
        return f"round {first}" if first == last else f"rounds {first} to {last}"
    if window.kind in ("leave", "join"):
        return f"at {window.begin:g} s"
    return f"{window.begin:g} s to {'the end' if window.end is None else f'{window.end:g} s'}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _missing_lines(survival: Survival) -> list[str]:
    """Who was missing when and why, in a line for each peer that missed somebody."""
    lines = [line for peer in survival.peers if (line := _missing_line(peer))]
    more = len(lines) - MAX_LINES
    told = [*lines[:MAX_LINES], *([f"... and {more} peers more"] if more > 0 else [])]
    return ["who was missing, and in which rounds; survival.json says why", *told] if told else []


def _missing_line(peer: Survivor) -> str:
    rounds: dict[str, list[int]] = defaultdict(list)
    for play in peer.rounds:
        for one in play.missed:
            rounds[one.neighbour].append(one.round_no)
    if not rounds:
        return ""
    why = Counter(_kind(one.why) for play in peer.rounds for one in play.missed)
    reasons = ", ".join(f"{what} {count}" for what, count in sorted(why.items()))
    said = "; ".join(f"{name} {_ranges(numbers)}" for name, numbers in sorted(rounds.items()))
    return f"  {peer.name} missed {said} ({reasons})"


def _kind(why: str) -> str:
    """A reason without its round."""
    words = why.split()
    for stop in ("in", "from", "before"):
        if stop in words and "round" in words:
            return " ".join(words[: words.index(stop)])
    return why


def _ranges(numbers: list[int]) -> str:
    """Write 1, 2, 3, 7 as 1-3 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return " ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)

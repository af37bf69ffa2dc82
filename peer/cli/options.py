"""Options that every node of a run has, a peer or a relay, and what they ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from peer.display import Display, JsonDisplay, LineDisplay
from peer.options.fields import Value
from protocol.manifest import parse_assignment

__all__ = ["display_of", "node_options", "options_of_run"]

_C = TypeVar("_C", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--join", metavar="STRING", help="What `coordinator start` printed. [found]"),
    click.option(
        "--bind", metavar="ADDR", help="Listen at HOST or HOST:PORT. [0.0.0.0, a free port]"
    ),
    click.option("--advertise", metavar="ADDR", help="How others reach this node. [found out]"),
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Folder of the run, in which this node makes its own. [runs/NAME OF RUN]",
    ),
    click.option(
        "--option",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any other option of the run, e.g. solver.lr=0.05. May be repeated.",
    ),
    click.option(
        "--faults",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Its [[fault]] tables befall the run; give the same file to every node.",
    ),
    click.option(
        "--threads", type=click.IntRange(1, 1024), help="Threads that compute. [what torch takes]"
    ),
    click.option(
        "--max-mbit",
        type=click.FloatRange(1.0, 1_000_000.0),
        metavar="MBIT",
        help="Megabits a second of parameters to each other node, at most. [no limit]",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Go on where an earlier process of this node was; where there was none, start.",
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Start anew: what an earlier process of this node left in its folder is removed.",
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout."),
)


def node_options(command: _C) -> _C:
    """Add them to a command, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def options_of_run(assignments: tuple[str, ...]) -> dict[str, Value]:
    """What was typed as --option KEY=VALUE.

    Raises:
        ConfigError: one is not of that form.
    """
    return dict(parse_assignment(text) for text in assignments)


def display_of(*, as_json: bool) -> Display:
    return JsonDisplay() if as_json else LineDisplay()

"""Options that every node of a run has, a peer or a relay, and what they ask for."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from peer.display import Display, JsonDisplay, LineDisplay
from peer.faults.file import load_faults
from peer.options.attack import Attack
from peer.options.fields import Value
from peer.start import Asked
from protocol.manifest import parse_assignment

__all__ = ["NodeOptions", "node_options"]


def _no_nan(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse what every range lets through: no comparison with it is true."""
    if value is not None and math.isnan(value):
        raise click.BadParameter(f"{value} is not a number.")
    return value


_OPTIONS = (
    click.option(
        "--patience",
        "patience_s",
        type=click.FloatRange(0.0, 86_400.0, min_open=True),
        callback=_no_nan,
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to try to reach the coordinator.",
    ),
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
        callback=_no_nan,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What was typed of them."""

    patience_s: float
    join: str | None
    bind: str | None
    advertise: str | None
    out: Path | None
    assignments: tuple[str, ...]
    faults: Path | None
    threads: int | None
    max_mbit: float | None
    resume: bool
    force: bool
    as_json: bool

    def asked(
        self,
        explicit: Mapping[str, Value],
        *,
        name: str | None,
        gpu: str,
        data: str = "",
        alone: bool = False,
        attack: Attack | None = None,
    ) -> Asked:
        """With what only one kind of node has; `explicit` wins over --option.

        Raises:
            ConfigError: an --option is not KEY=VALUE, or the file of faults cannot be used.
        """
        return Asked(
            data=data,
            gpu=gpu,
            join=self.join,
            bind=self.bind,
            advertise=self.advertise,
            name=name,
            out=self.out,
            threads=self.threads,
            alone=alone,
            patience_s=self.patience_s,
            explicit=dict(map(parse_assignment, self.assignments)) | dict(explicit),
            attack=attack,
            faults=load_faults(self.faults) if self.faults is not None else (),
            resume=self.resume,
            force=self.force,
            max_mbit=self.max_mbit,
        )

    def display(self) -> Display:
        return JsonDisplay() if self.as_json else LineDisplay()


def node_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add them to a command, which takes them together as `node`."""

    @wraps(command)
    def taking(**typed: Any) -> int:  # noqa: ANN401 - click's
        node = {field.name: typed.pop(field.name) for field in fields(NodeOptions)}
        return command(node=NodeOptions(**node), **typed)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking

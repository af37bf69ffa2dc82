"""What the commands that play an experiment file have in common, launched or simulated."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click
from rich.console import Console

from peer.experiment import load_experiment
from peer.options.fields import Value

__all__ = ["experiment_options", "result_console"]

PLAIN_WIDTH = 140  # characters, where the output is no terminal

_OPTIONS = (
    click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml"),
    click.option(
        "--out", type=click.Path(path_type=Path), metavar="DIR", help="Run directory. [runs/NAME]"
    ),
    click.option("--seed", type=int, metavar="N", help="In place of run.seed."),
    click.option("--rounds", type=int, metavar="N", help="In place of run.rounds."),
    click.option("--force", is_flag=True, help="Replace the results in DIR, and no other file."),
)


def experiment_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add them to a command, which takes the `experiment`, the run directory `out`, and `force`."""

    @wraps(command)
    def taking(
        *, file: Path, out: Path | None, seed: int | None, rounds: int | None, **more: object
    ) -> int:
        given: dict[str, int | None] = {"run.seed": seed, "run.rounds": rounds}
        overrides: dict[str, Value] = {key: n for key, n in given.items() if n is not None}
        experiment = load_experiment(file, overrides)
        return command(experiment=experiment, out=out or Path("runs") / experiment.name, **more)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking


def result_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)

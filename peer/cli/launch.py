"""`peer launch`: an experiment file as real processes of this machine."""

from pathlib import Path

import click
from rich.console import Console

from peer.experiment import load_experiment
from peer.launch import run
from peer.options.fields import Value

__all__ = ["launch", "result_console"]

PLAIN_WIDTH = 140  # characters, where the output is no terminal


@click.command("launch")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Run directory. [runs/NAME]"
)
@click.option("--seed", type=int, metavar="N", help="In place of run.seed.")
@click.option("--rounds", type=int, metavar="N", help="In place of run.rounds.")
@click.option("--force", is_flag=True, help="Replace the results in DIR, and no other file.")
@click.option("--logs", is_flag=True, help="Show what every process says, not only in launch.log.")
def launch(
    file: Path, out: Path | None, seed: int | None, rounds: int | None, force: bool, logs: bool
) -> int:
    """Start a coordinator and the peers of FILE.toml on this machine, and sum up their results.

    The run directory then holds result.json, curves.png, influence.png, launch.log and a folder for
    each peer. Whatever happens, everything that was started ends.
    """
    given: dict[str, int | None] = {"run.seed": seed, "run.rounds": rounds}
    overrides: dict[str, Value] = {key: n for key, n in given.items() if n is not None}
    experiment = load_experiment(file, overrides)
    consoles = run.Consoles(Console(stderr=True), result_console(), all_lines=logs)
    return run.launch(experiment, out or Path("runs") / experiment.name, consoles, force=force)


def result_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)

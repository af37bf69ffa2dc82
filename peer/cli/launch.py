"""`peer launch`: an experiment file as real processes of this machine."""

from pathlib import Path

import click
from rich.console import Console

from peer.cli.experiment import experiment_options, result_console
from peer.experiment import Experiment
from peer.launch import run

__all__ = ["launch"]


@click.command("launch")
@experiment_options
@click.option("--logs", is_flag=True, help="Show what every process says, not only in launch.log.")
def launch(*, experiment: Experiment, out: Path, force: bool, logs: bool) -> int:
    """Start a coordinator and the peers of FILE.toml on this machine, and sum up their results.

    The run directory then holds result.json, curves.png, influence.png, launch.log and a folder for
    each peer. Whatever happens, everything that was started ends.
    """
    consoles = run.Consoles(Console(stderr=True), result_console(), all_lines=logs)
    return run.launch(experiment, out, consoles, force=force)

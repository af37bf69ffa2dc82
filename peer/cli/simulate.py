"""`peer simulate`: an experiment file on virtual time, in one process."""

from pathlib import Path

import click
from rich.console import Console

from peer.cli.experiment import experiment_options, result_console
from peer.experiment import Experiment

__all__ = ["simulate"]


@click.command("simulate")
@experiment_options
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that train. How many changes nothing but the time.",
)
def simulate(*, experiment: Experiment, out: Path, force: bool, workers: int) -> int:
    """Play FILE.toml on virtual time: the same machines and methods as a launch, no sockets."""
    from peer.simulation import run  # noqa: PLC0415 - it loads torch, which takes seconds

    consoles = run.Consoles(Console(stderr=True), result_console())
    return run.simulate(experiment, out, consoles, force=force, workers=workers)

"""`peer simulate`: an experiment file on virtual time, in one process."""

from pathlib import Path

import click
from rich.console import Console

from peer.cli.launch import result_console
from peer.experiment import load_experiment
from peer.options.fields import Value

__all__ = ["simulate"]


@click.command("simulate")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Run directory. [runs/NAME]"
)
@click.option("--seed", type=int, metavar="N", help="In place of run.seed.")
@click.option("--rounds", type=int, metavar="N", help="In place of run.rounds.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that train. How many changes nothing but the time.",
)
@click.option("--force", is_flag=True, help="Replace the results in DIR, and no other file.")
def simulate(
    file: Path,
    out: Path | None,
    seed: int | None,
    rounds: int | None,
    workers: int,
    force: bool,
) -> int:
    """Play FILE.toml on virtual time: the same machines and methods as a launch, no sockets."""
    from peer.simulation import run  # noqa: PLC0415 - it loads torch, which takes seconds

    given: dict[str, int | None] = {"run.seed": seed, "run.rounds": rounds}
    overrides: dict[str, Value] = {key: n for key, n in given.items() if n is not None}
    experiment = load_experiment(file, overrides)
    consoles = run.Consoles(Console(stderr=True), result_console())
    folder = out or Path("runs") / experiment.name
    return run.simulate(experiment, folder, consoles, force=force, workers=workers)

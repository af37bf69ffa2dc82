"""What comes before and after the playing of an experiment, real or on virtual time."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from peer.data.archive import replacing
from peer.data.make import make_shards
from peer.experiment import MAX_PEERS, Experiment
from peer.launch.board import Board
from peer.launch.directory import RunDirectory, claimed
from peer.launch.plan import Seat, seats
from protocol.errors import ConfigError

__all__ = ["Stage", "set_stage", "tell_failures", "tell_unused"]


@dataclass(frozen=True, slots=True)
class Stage:
    directory: RunDirectory
    seats: tuple[Seat, ...]


def set_stage(experiment: Experiment, out: Path, *, force: bool, most: int) -> Stage:
    """Make the run directory and the data ready, and say who takes part.

    Args:
        experiment: what is to be played.
        out: run directory.
        force: replace the results there.
        most: peers that can be played.

    Raises:
        OperatorError: the run directory, the data or the peers are not fit to start.
    """
    directory = claimed(out, force=force)
    folder = experiment.data.shards or directory.shards
    if experiment.data.make is not None:
        make_shards(experiment.data.make, folder, force=force)
    taken = seats(experiment, folder)
    if len(taken) > most:
        more = "" if most == MAX_PEERS else f"peer simulate plays up to {MAX_PEERS} on virtual time"
        raise ConfigError(f"{len(taken)} peers are too many, {most} are allowed", hint=more)
    directory.begin()  # old results go when nothing can be refused any more
    with replacing(directory.experiment) as file:
        file.write(experiment.text.encode())
    return Stage(directory, taken)


def tell_unused(experiment: Experiment, progress: Console) -> None:
    """Give each line of the file that has no use in this run a line."""
    for line in experiment.unused:
        progress.print(f"Note: {line}", markup=False, highlight=False, soft_wrap=True)


def tell_failures(
    experiment: Experiment, directory: RunDirectory, board: Board, progress: Console
) -> int:
    """Give each failure a line, and tidy up after a run without one; the exit code."""
    for failure in board.failures:
        text = f"Error: {failure.name} failed: {failure.words}"
        progress.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    if not board.failures and not experiment.launch.keep_state:
        directory.forget_state()
    return board.exit_code

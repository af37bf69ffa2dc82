"""The end of a launch: result.json, pictures and the table, from what the peers have left."""

from rich.console import Console

from peer.affinity import Affinity
from peer.experiment import Experiment
from peer.launch.board import Board, Failure
from peer.launch.directory import RunDirectory
from peer.launch.result import Result, findings, remarks, served_table, table, write_result
from peer.launch.survival import report_survival
from peer.ledger import SUMMARY
from peer.past import past_affinity, read_past
from peer.pictures import draw_curves, draw_influence
from peer.roles import Role
from peer.summary import PeerSummary, read_summary
from protocol.errors import OperatorError

__all__ = ["report"]

_GONE = {"killed", "away", "frozen"}  # phases of those whom the faults keep from finishing


def report(
    experiment: Experiment,
    directory: RunDirectory,
    board: Board,
    *,
    progress: Console,
    result: Console,
) -> None:
    """Write and show what there is; peers that left no summary join `board.failures`.

    Raises:
        DataError: a file cannot be read or written.
    """
    summaries, relays = _summaries(directory, board)
    gone = [n for n, node in board.peers.items() if node.phase in _GONE]
    whole = Result.of(experiment, summaries, board.failures, relays, gone)
    write_result(directory.result, whole)
    if not summaries:
        return
    influence = _draw(experiment, directory, progress)
    result.print(table(whole))
    if (choices := served_table(whole)) is not None:
        result.print(choices)
    for line in (*remarks(whole), *findings(influence)):
        result.print(line, highlight=False, markup=False, soft_wrap=True)
    report_survival(experiment, directory, progress=progress, result=result)
    progress.print(f"Results are in {directory.root}.", highlight=False, markup=False)


def _summaries(
    directory: RunDirectory, board: Board
) -> tuple[list[PeerSummary], list[PeerSummary]]:
    """Read the rows of those that finished; whoever ended well without one was stopped early.

    Returns:
        Those of the peers, and those of relays.
    """
    summaries: list[PeerSummary] = []
    relays: list[PeerSummary] = []
    known = {failure.name for failure in board.failures}
    for name, node in board.peers.items():
        path = directory.root / name / SUMMARY
        if path.exists():
            (relays if node.role is Role.RELAY else summaries).append(read_summary(path))
        elif name not in known and node.phase not in _GONE:
            board.failures.append(Failure(name, 1, "it was stopped before it had finished"))
    return summaries, relays


def _draw(experiment: Experiment, directory: RunDirectory, progress: Console) -> Affinity:
    """Draw what can be drawn; without matplotlib say so, for the numbers are there."""
    peers = read_past(directory.root)
    influence = past_affinity(peers)
    rounds = experiment.settings.run.rounds
    title = f"{experiment.name}: {experiment.settings.method}, {len(peers)} peers, {rounds} rounds"
    try:
        draw_curves(directory.curves, peers, title=title)
        if len(influence.peers) > 1:
            draw_influence(directory.influence_map, influence, title=title)
    except OperatorError as error:
        progress.print(f"No pictures: {error}", highlight=False, markup=False)
    return influence

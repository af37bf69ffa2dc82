"""A launch from start to end: data, processes, results. The shell; `board.py` decides."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from signal import Signals as SignalNumber

from rich.console import Console

from peer.experiment import Experiment
from peer.faults.disk import mark_in
from peer.faults.table import Kind
from peer.launch.board import COORDINATOR, Board, Failure
from peer.launch.cast import Cast
from peer.launch.directory import RunDirectory
from peer.launch.display import LaunchDisplay, launch_display
from peer.launch.log import LaunchLog
from peer.launch.plan import (
    Seat,
    coordinator_command,
    founder_count,
    node_command,
    peer_environ,
    thread_count,
)
from peer.launch.processes import Command, Ended, Happening, Line, Processes, Signals
from peer.launch.report import report
from peer.launch.script import Script
from peer.launch.stage import set_stage, tell_failures, tell_unused
from protocol.clock import MonotonicClock

__all__ = ["Consoles", "launch"]

MAX_PROCESSES = 256  # peers of one machine; each is two processes
POLL_S = 0.2
GRACE_S = 10.0  # between asking a process to end and killing it
COORDINATOR_S = 60.0  # for its join string: it takes one on a quiet machine


@dataclass(frozen=True, slots=True)
class Consoles:
    """Progress is for a person, the table for whoever reads the output."""

    progress: Console
    result: Console
    all_lines: bool  # show also what the processes say


def launch(experiment: Experiment, out: Path, consoles: Consoles, *, force: bool) -> int:
    """Run an experiment on this machine and leave its results in `out`.

    Returns:
        The exit code: 0 when every peer has finished; 2 or 1 when one has failed by an operator's
        fault or ours; 128 and the number of the signal that ended the launch.

    Raises:
        OperatorError: the run directory, the data or the peers are not fit to start.
    """
    stage = set_stage(experiment, out, force=force, most=MAX_PROCESSES)
    tell_unused(experiment, consoles.progress)
    directory = stage.directory
    with Signals() as signals:
        try:
            board = _play(experiment, directory, stage.seats, consoles, signals)
        finally:
            directory.forget_keys()
    if signals.received:
        name = SignalNumber(signals.received[0]).name
        consoles.progress.print(f"Stopped by {name}; what the peers had done is in {out}.")
        return 128 + signals.received[0]
    if board.begun:
        report(experiment, directory, board, progress=consoles.progress, result=consoles.result)
    return tell_failures(experiment, directory, board, consoles.progress)


def _play(
    experiment: Experiment,
    directory: RunDirectory,
    taken: Sequence[Seat],
    consoles: Consoles,
    signals: Signals,
) -> Board:
    """Start everything, hear it out, and end everything."""
    clock = MonotonicClock()
    relay = experiment.relay
    board = Board.of(
        [seat.name for seat in taken],
        experiment.settings.run.rounds,
        relay=relay.name if relay is not None else None,
        restarts=experiment.launch.restart,
    )
    script = Script(
        experiment.faults,
        relay=relay.name if relay is not None else None,
    )
    with ExitStack() as stack:
        display = stack.enter_context(launch_display(consoles.progress, clock))
        width = max(len(name) for name in (COORDINATOR, *board.peers))
        log = stack.enter_context(LaunchLog(directory.log, width=width, tell=display.say))
        hearer = _Hearer(board, display, log, all_lines=consoles.all_lines)
        processes = stack.enter_context(Processes(clock, signals, grace_s=GRACE_S))
        commands = _Commands(
            experiment, taken, directory, founders=founder_count(experiment, taken)
        )
        cast = Cast(processes, board, script, commands.of, commands.mark, clock, hearer.tell)
        cast.start(COORDINATOR)
        until_s = clock.now_s() + COORDINATOR_S
        while not (board.join_string or board.doomed or signals.received):
            hearer.hear(processes.poll(POLL_S))
            if clock.now_s() > until_s:
                words = f"it has printed no join string in {COORDINATOR_S:.0f} s"
                board.failures.append(Failure(COORDINATOR, 1, words))
        if board.join_string:
            commands.join = board.join_string
            for name in script.late:
                board.peers[name].phase = "away"
            cast.start(*(name for name in board.peers if name not in script.late))
        while not (cast.is_over or board.doomed or signals.received):
            hearer.hear(processes.poll(POLL_S))
            cast.turn()
        board.closing = True
        hearer.hear(processes.end())
    return board


class _Commands:
    """How each of them is started."""

    def __init__(
        self,
        experiment: Experiment,
        taken: Sequence[Seat],
        directory: RunDirectory,
        *,
        founders: int,
    ) -> None:
        self._experiment, self._founders = experiment, founders
        self._seats = {seat.name: seat for seat in taken}
        self._home = directory.home.absolute()
        self._out = directory.root.absolute()
        self._threads = thread_count(experiment.launch, len(taken))
        self.join = ""  # the run's join string, once the coordinator has printed it

    def _runs_full(self, name: str) -> bool:
        return any(f.kind is Kind.DISK_FULL and f.befalls(name) for f in self._experiment.faults)

    def mark(self, name: str) -> Path:
        """While it is there, the disk of this node is full."""
        return self._home / f"{name}.full"

    def of(self, name: str, again: bool) -> Command:  # noqa: FBT001 - as `Cast` asks for it
        if name == COORDINATOR:
            return coordinator_command(
                self._experiment, self._founders, os.environ, self._home, again=again
            )
        environ = {
            **peer_environ(os.environ, self._home, join=self.join, threads=self._threads),
            **(mark_in(self._out / name, self.mark(name)) if self._runs_full(name) else {}),
        }
        relay = self._experiment.relay
        return node_command(
            self._experiment,
            relay if relay is not None and name == relay.name else self._seats[name],
            out=self._out,
            threads=self._threads,
            environ=environ,
            again=again,
        )


class _Hearer:
    """Takes what happened to the board, the log and the display."""

    def __init__(
        self, board: Board, display: LaunchDisplay, log: LaunchLog, *, all_lines: bool
    ) -> None:
        self._board, self._display, self._log = board, display, log
        self._all_lines = all_lines

    def tell(self, text: str) -> None:
        """The launcher itself has something to say."""
        self._display.say(self._log.write(Line("launch", text, is_error=True)))

    def hear(self, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            if isinstance(happening, Ended):
                remark = self._board.end(happening)
            else:
                remark = self._board.hear(happening)
                if happening.is_error:  # the rest is in each peer's events.jsonl
                    text = self._log.write(happening)
                    if self._all_lines:
                        self._display.say(text)
            if remark:
                self._display.say(remark)
        self._display.show(self._board)

"""Whoever plays in a launch, and what the faults do to them: carries out what `script.py` says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import assert_never

from peer.faults.weather import BEGAN
from peer.launch.board import Board
from peer.launch.processes import Command, Processes
from peer.launch.script import Cue, Do, Script
from protocol.clock import Clock, wall_s

__all__ = ["Cast"]


@dataclass(slots=True)
class Cast:
    processes: Processes
    board: Board
    script: Script
    command: Callable[[str, bool], Command]  # how one is started, for the first time or again
    mark: Callable[[str], Path]  # that says that the disk of this one is full
    clock: Clock
    tell: Callable[[str], None]
    _began_s: float | None = None
    _ran: set[str] = field(default_factory=set)  # who has been started before
    _to_start: list[str] = field(default_factory=list)

    def start(self, *names: str) -> None:
        """Have them play from now on, or as soon as what still runs of them has ended."""
        self._to_start += [name for name in names if name not in self._to_start]
        for name in [name for name in self._to_start if name not in self.processes.running]:
            self._to_start.remove(name)
            self.processes.start(self._timed(self.command(name, name in self._ran)))
            self.board.started(name)
            self._ran.add(name)

    def turn(self) -> None:
        """Do what is due."""
        now_s = self.clock.now_s()
        if self._began_s is None and self.board.begun:
            self._began_s = now_s
        if self._began_s is not None:
            running = set(self.processes.running)
            for cue in self.script.due(self.board.rounds_reached, running, now_s - self._began_s):
                self._carry_out(cue)
        again, self.board.to_start = self.board.to_start, []
        self.start(*again)

    @property
    def is_over(self) -> bool:
        """Nobody plays, and nobody will: all have ended, or are frozen and nothing thaws them.

        What would thaw them at a round does not come when nobody begins one.
        """
        playing = self.board.peers.keys() & set(self.processes.running)
        frozen = {n for n in self.board.frozen if not self.script.moves_by_the_clock(n)}
        if self._to_start or playing - frozen:
            return False
        someone_is_done = any(peer.phase == "done" for peer in self.board.peers.values())
        return someone_is_done or not self.script.starts_by_the_clock()

    def _carry_out(self, cue: Cue) -> None:
        name, processes = cue.name, self.processes
        if name not in processes.running and cue.do is not Do.START:
            return  # it has ended by itself, and nothing can befall it
        self.tell(str(cue))
        match cue.do:
            case Do.KILL:
                self.board.frozen.discard(name)
                self.board.excuse(name)
                processes.send(name, SIGKILL)
            case Do.START:
                if name not in processes.running or self.board.is_excused(name):
                    self.start(name)
            case Do.FREEZE:
                self.board.frozen.add(name)
                processes.send(name, SIGSTOP)
            case Do.THAW:
                self.board.frozen.discard(name)
                processes.send(name, SIGCONT)
            case Do.LEAVE:
                self.board.frozen.discard(name)
                processes.stop(name)
            case Do.FILL | Do.FREE:
                self._fill(self.mark(name), full=cue.do is Do.FILL)
            case _:
                assert_never(cue.do)

    def _fill(self, mark: Path, *, full: bool) -> None:
        if full:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def _timed(self, command: Command) -> Command:
        if self._began_s is None:
            return command
        began_s = wall_s() - (self.clock.now_s() - self._began_s)
        return Command(command.name, command.argv, {**command.environ, BEGAN: repr(began_s)})

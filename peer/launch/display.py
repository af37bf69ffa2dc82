"""What a person sees of a launch: a live table on a terminal, a line now and then elsewhere.

Everything goes to stderr. Decides nothing. Starts no thread: whoever holds it calls `show` often.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from peer.launch.board import Board, PeerState
from peer.roles import Role
from protocol.clock import Clock

__all__ = ["LaunchDisplay", "launch_display"]

REFRESH_S = 0.25
LINE_S = 15.0  # between two plain lines that only say how far the run is
BAR_CHARS = 12
SHOWN_PEERS = 24  # rows of the table; above, those that are furthest behind

_DOING = {
    "starting": "starting",
    "join": "joining",
    "lobby": "in the lobby",
    "collect": "pulling",
    "mix": "mixing",
    "train": "training",
    "evaluate": "evaluating",
    "publish": "publishing",
    "drain": "serving others",
    "left": "leaving",
    "alone": "training alone",
    "done": "done",
    "failed": "failed",
    "killed": "killed by a fault",
    "away": "not here yet",
}
_DOING_AS_RELAY = {**_DOING, "mix": "aggregating"}
_STYLES = {"done": "green", "failed": "bold red", "collect": "yellow"}


class LaunchDisplay(Protocol):
    def say(self, text: str) -> None:
        """Something happened that a person should see."""

    def show(self, board: Board) -> None:
        """May be called often; shown as often as is of use."""


@contextmanager
def launch_display(console: Console, clock: Clock) -> Iterator[LaunchDisplay]:
    if not console.is_terminal:
        yield _Lines(console, clock)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _Board(live, clock)


class _Board:
    """One table that is drawn over itself."""

    def __init__(self, live: Live, clock: Clock) -> None:
        self._live, self._clock = live, clock
        self._next_s = -math.inf
        self._pace = _Pace()

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def show(self, board: Board) -> None:
        now_s = self._clock.now_s()
        self._pace.note(board, now_s)
        if now_s >= self._next_s:
            self._next_s = now_s + REFRESH_S
            self._live.update(_table(board, self._pace.left_text(board, now_s)), refresh=True)


def _table(board: Board, left: str) -> Table:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, caption=left, caption_justify="left")
    shown.add_column("peer", no_wrap=True)
    shown.add_column("round", justify="right", no_wrap=True)
    shown.add_column("", width=BAR_CHARS)
    shown.add_column("doing", no_wrap=True, min_width=18)
    shown.add_column("accuracy", justify="right", no_wrap=True)  # on the validation split
    shown.add_column("waits for", max_width=40, no_wrap=True)
    peers = sorted(board.peers.values(), key=lambda peer: peer.round_no)[:SHOWN_PEERS]
    kept = {peer.name for peer in peers}
    for peer in (peer for peer in board.peers.values() if peer.name in kept):
        doing = _doing(peer)
        shown.add_row(
            peer.name,
            f"{peer.round_no}/{board.rounds}",
            ProgressBar(total=board.rounds, completed=_completed(peer), width=BAR_CHARS),
            Text(_with_share(doing, peer), style=_STYLES.get(peer.phase, "")),
            "-" if peer.accuracy is None else f"{peer.accuracy:.1%}",
            Text(_waiting(peer), style="yellow"),
        )
    return shown


def _doing(peer: PeerState) -> str:
    words = _DOING if peer.role is Role.PEER else _DOING_AS_RELAY
    return words.get(peer.phase, peer.phase)


def _with_share(doing: str, peer: PeerState) -> str:
    return f"{doing} {peer.fraction:.0%}" if 0.0 < peer.fraction < 1.0 else doing


def _completed(peer: PeerState) -> float:
    """Rounds that a peer has behind it."""
    if peer.phase in {"done", "drain", "left", "alone"}:
        return float(peer.round_no)
    return max(0.0, peer.round_no - 1.0)


def _waiting(peer: PeerState) -> str:
    if not peer.waiting_for:
        return ""
    eta = f", about {peer.eta_s:.0f} s" if peer.eta_s > 0.5 else ""
    return ", ".join(peer.waiting_for) + eta


class _Lines:
    """For logs and pipes: what happened, and now and then how far the run is."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console, self._clock = console, clock
        self._next_s = -math.inf
        self._last = ""
        self._pace = _Pace()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, board: Board) -> None:
        now_s = self._clock.now_s()
        self._pace.note(board, now_s)
        if now_s < self._next_s:
            return
        self._next_s = now_s + LINE_S
        text = _summary(board)
        if text != self._last:
            left = self._pace.left_text(board, now_s)
            self.say(f"{text}; {left}" if left else text)
        self._last = text


def _summary(board: Board) -> str:
    """One line: the round of the slowest, what they do, how good they are."""
    peers = list(board.peers.values())
    phases: dict[str, int] = {}
    for peer in peers:
        doing = _doing(peer)
        phases[doing] = phases.get(doing, 0) + 1
    doing = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    known = [peer.accuracy for peer in peers if peer.accuracy is not None]
    accuracy = f", mean validation accuracy {sum(known) / len(known):.1%}" if known else ""
    slowest = min(peer.round_no for peer in peers)
    return f"round {slowest} of {board.rounds}: {doing}{accuracy}"


class _Pace:
    """How long the rest of the rounds takes, from how long those so far took."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._first = 0.0

    def note(self, board: Board, now_s: float) -> None:
        if self._began_s is None and board.begun:
            self._began_s, self._first = now_s, _mean_completed(board)

    def left_text(self, board: Board, now_s: float) -> str:
        if self._began_s is None:
            return ""
        done = _mean_completed(board) - self._first
        to_do = board.rounds - _mean_completed(board)
        if done < 1.0 or to_do < 0.5:
            return ""
        left_s = (now_s - self._began_s) / done * to_do
        return (
            f"about {left_s / 60:.0f} min left" if left_s > 90.0 else f"about {left_s:.0f} s left"
        )


def _mean_completed(board: Board) -> float:
    return sum(_completed(peer) for peer in board.peers.values()) / len(board.peers)

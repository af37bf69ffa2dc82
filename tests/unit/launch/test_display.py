"""A launch on a terminal and in a log."""

from io import StringIO

from rich.console import Console

from peer.launch.board import Board
from peer.launch.display import LINE_S, launch_display
from peer.launch.processes import Line


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s


def in_round(number: int) -> Board:
    board = Board.of(["a", "b"], rounds=10)
    for name in ("a", "b"):
        text = f'{{"event": "progress", "phase": "train", "round": {number}, "fraction": 0.5}}'
        board.hear(Line(name, text, is_error=False))
    return board


def test_a_log_gets_a_line_now_and_then_and_the_time_that_is_left() -> None:
    out, clock = StringIO(), Hand()
    with launch_display(Console(file=out, width=200), clock) as display:
        display.show(in_round(1))
        display.show(in_round(2))  # too soon
        clock.at_s = 2 * LINE_S
        display.show(in_round(3))  # two rounds in 30 s: 8 are left
        display.say("b has failed: [red] no markup")
    assert out.getvalue().splitlines() == [
        "round 1 of 10: 2 training",
        "round 3 of 10: 2 training; about 2 min left",
        "b has failed: [red] no markup",
    ]


def test_a_terminal_gets_a_row_for_each_peer() -> None:
    out, clock = StringIO(), Hand()
    console = Console(file=out, width=120, force_terminal=True)
    board = in_round(3)
    text = '{"event": "progress", "phase": "collect", "round": 4, "waiting_for": ["b"], "eta_s": 7}'
    board.hear(Line("a", text, is_error=False))
    with launch_display(console, clock) as display:
        display.show(board)
    shown = out.getvalue()
    assert "pulling" in shown
    assert "training 50%" in shown
    assert "b, about 7 s" in shown

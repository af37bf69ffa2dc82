"""Showing a run to whoever started its coordinator: plain lines, a live line, or JSON."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TextIO

from coordinator.changes import Change, changes, status_line
from protocol.clock import wall_s
from protocol.wire.messages import View

__all__ = ["display"]


@contextmanager
def display(*, as_json: bool, start: Mapping[str, object]) -> Iterator[Callable[[View], None]]:
    """Announce the coordinator, then show each view that it is given.

    The join string goes to stdout, alone on its line; what is for a person goes to stderr.

    Args:
        as_json: one JSON object a line on stdout instead.
        start: run, address, join, and a note or "".
    """
    if as_json:
        _print_json("listening", start)
        yield _teller(lambda change, view: _print_json(change.event, _fields(change, view)))
        return
    _announce(start)
    if sys.stderr.isatty():
        with _live() as show:
            yield show
    else:
        yield _teller(lambda change, _: _print_line(change.text))


def _announce(start: Mapping[str, object]) -> None:
    _print_line(f"run {start['run']} at {start['address']}")
    if start["note"]:
        _print_line(str(start["note"]))
    _print_line("on every other host, once:  peer join STRING   with this line as STRING:")
    _print(str(start["join"]), sys.stdout)
    _print_line("then on every host:  peer start --data SHARD")


def _teller(tell: Callable[[Change, View], None]) -> Callable[[View], None]:
    """Remember the last view, to tell only what changed."""
    last: list[View] = []

    def show(view: View) -> None:
        for change in changes(last[0] if last else None, view):
            tell(change, view)
        last[:] = [view]

    return show


@contextmanager
def _live() -> Iterator[Callable[[View], None]]:
    from rich.console import Console  # noqa: PLC0415 - 50 ms that only a terminal needs
    from rich.live import Live  # noqa: PLC0415 - likewise
    from rich.text import Text  # noqa: PLC0415 - likewise

    console = Console(stderr=True, highlight=False)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        tell = _teller(lambda change, _: live.console.print(Text(f"{_now()} {change.text}")))

        def show(view: View) -> None:
            tell(view)
            live.update(Text(status_line(view), style="bold"), refresh=True)

        yield show


def _fields(change: Change, view: View) -> Mapping[str, object]:
    ready = [member.name for member in view.members if member.state == "ready"]
    return {"name": change.name, "ready": ready, "founders": view.founders}


def _print_json(event: str, fields: Mapping[str, object]) -> None:
    _print(json.dumps({"event": event, "at_s": wall_s(), **fields}), sys.stdout)


def _print_line(text: str) -> None:
    _print(f"{_now()} {text}", sys.stderr)


def _print(line: str, stream: TextIO) -> None:
    with suppress(BrokenPipeError):  # a run does not end because nobody reads any more
        print(line, file=stream, flush=True)


def _now() -> str:
    return datetime.fromtimestamp(wall_s(), UTC).astimezone().strftime("%H:%M:%S")

"""The commands of the coordinator."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM, signal

import click

from coordinator.changes import status_line
from coordinator.config import read_config
from coordinator.directory import Directory
from coordinator.display import display
from coordinator.opening import Stored, announced, listen, opened, stored_run
from coordinator.runtime import Runtime
from protocol.clock import MonotonicClock, wall_s
from protocol.console import Commands
from protocol.home import find_home
from protocol.transport.base import Wake
from protocol.transport.zeromq import ZeroMq, raise_descriptor_limit

__all__ = ["main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kinfolk")
def main() -> None:
    """Know who is a member of a run, and nothing else: no parameter ever comes here."""


@main.command()
@click.option("--bind", metavar="ADDR", help="Listen at HOST, HOST:PORT or HOST:0. [0.0.0.0:7733]")
@click.option("--advertise", metavar="HOST", help="How other hosts reach this one. [found out]")
@click.option("--founders", type=int, metavar="N", help="Peers that the lobby waits for. [2]")
@click.option("--run", "run_name", metavar="NAME", help="Name a new run, or resume that one.")
@click.option(
    "--experiment",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.toml",
    help="Pin the options in this file for all peers.",
)
@click.option(
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Pin one option for all peers, e.g. solver.lr=0.05. May be repeated.",
)
@click.option(
    "--lease",
    "lease_s",
    type=float,
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="A member that is silent for so long is shown as lost.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def start(
    bind: str | None,
    advertise: str | None,
    founders: int | None,
    run_name: str | None,
    experiment: Path | None,
    assignments: tuple[str, ...],
    lease_s: float,
    as_json: bool,
) -> None:
    """Start a run and print its join string, the one line that other hosts need.

    With the --run of an earlier start, the same run goes on: same keys, members and join string.
    """
    config = read_config(
        bind=bind,
        advertise=advertise,
        founders=founders,
        run_name=run_name,
        experiment=experiment,
        assignments=assignments,
        lease_s=lease_s,
    )
    home = find_home(os.environ)
    clock = MonotonicClock()
    raise_descriptor_limit()
    with opened(home, config, now_s=wall_s()) as run:
        keys = {"public_key": run.identity.curve_public, "secret_key": run.identity.curve_secret}
        with closing(ZeroMq(**keys)) as transport:
            listener = listen(transport, run.book, config)
            directory = Directory(
                run.book,
                sign_secret=run.identity.sign_secret,
                lease_s=config.lease_s,
                now_s=clock.now_s(),
            )
            with announced(home, run) as join, _stopped_by_signals(transport.wake()) as stop:
                about = {
                    "run": run.book.run_name,
                    "address": join.address,
                    "join": str(join),
                    "note": run.note,
                }
                with display(as_json=as_json, start=about) as show:
                    Runtime(
                        directory=directory,
                        book=run.book,
                        journal=run.journal,
                        listener=listener,
                        poller=transport.poller(),
                        stop=stop,
                        clock=clock,
                        show=show,
                    ).run()


@contextmanager
def _stopped_by_signals(stop: Wake) -> Iterator[Wake]:
    before = {number: signal(number, lambda *_: stop.set()) for number in (SIGINT, SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal(number, handler)


@main.command()
@click.option("--run", "run_name", metavar="NAME", help="Which run. [the one written last]")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(run_name: str | None, as_json: bool) -> None:
    """Show the members of a run that was led from this host, as its journal has them."""
    stored = stored_run(find_home(os.environ), run_name)
    if as_json:
        click.echo(json.dumps(_as_json(stored), indent=1))
        return
    book = stored.book
    state = f"running on {stored.holder}" if stored.holder else "stopped"
    click.echo(
        f"run {book.run_name}, coordinator {state}, tcp://{book.advertise} bound {book.bind}"
    )
    click.echo(status_line(book.view(0)))
    for member in book.view(0).members:
        line = f"  {member.name:<24} {member.role:<6} {member.state:<8} round {member.round_no:<6}"
        click.echo(f"{line} {member.address}")


def _as_json(stored: Stored) -> Mapping[str, object]:
    book = stored.book
    return {
        "run": book.run_name,
        "running": stored.holder,
        "founders": book.founders,
        "founding": book.founding,
        "settled": book.settled,
        "options": dict(book.options),
        "members": [
            {
                "name": member.name,
                "role": member.role,
                "state": member.state,
                "round": member.round_no,
                "address": member.address,
            }
            for member in book.view(0).members
        ],
    }

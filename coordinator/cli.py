"""The commands of the coordinator."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGINT, SIGTERM, signal

import click

from coordinator.changes import status_line
from coordinator.config import read_config
from coordinator.directory import Directory
from coordinator.display import display
from coordinator.opening import Stored, announced, join_string, keys_of, listen, opened, stored_run
from coordinator.orders import give
from coordinator.runtime import Runtime
from coordinator.tokens import TOKEN_BYTES
from protocol.clock import MonotonicClock, wall_s
from protocol.console import Commands
from protocol.errors import ConfigError
from protocol.home import find_home
from protocol.ids import peer_id
from protocol.transport.base import Wake
from protocol.transport.zeromq import ZeroMq, raise_descriptor_limit
from protocol.wire.messages import Lift, NewToken, Revoke, Withdraw

__all__ = ["main"]

MAX_UNTIL_S = 1e11  # since 1970; what a message carries

_of_run = click.option(
    "--run", "run_name", metavar="NAME", help="Of which run. [the one written last]"
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kinfolk")
def main() -> None:
    """Know who is a member of a run, and nothing else: no parameter ever comes here."""


@main.command()
@click.option("--bind", metavar="ADDR", help="Listen at HOST, HOST:PORT or HOST:0. [0.0.0.0:7733]")
@click.option("--advertise", metavar="HOST", help="How other hosts reach this one. [found out]")
@click.option("--founders", type=int, metavar="N", help="Peers that the lobby waits for. [2]")
@click.option("--relays", type=int, metavar="N", help="Relays that it waits for too. [0]")
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
    *,
    bind: str | None,
    advertise: str | None,
    founders: int | None,
    relays: int | None,
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
        relays=relays,
        run_name=run_name,
        experiment=experiment,
        assignments=assignments,
        lease_s=lease_s,
    )
    home = find_home(os.environ)
    clock = MonotonicClock()
    raise_descriptor_limit()
    with opened(home, config, now_s=wall_s()) as run:
        public, secret = run.identity.curve_public, run.identity.curve_secret
        with closing(ZeroMq(public_key=public, secret_key=secret)) as transport:
            door = listen(transport, run.book, config)
            directory = Directory(
                run.book,
                sign_secret=run.identity.sign_secret,
                lease_s=config.lease_s,
                now_s=clock.now_s(),
                operator=run.identity.curve_public,
                since_1970_s=wall_s,
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
                        door=door,
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
    if book.refused:
        click.echo(f"refused for what they sent: {len(book.refused)}; see coordinator refused")


@main.command()
@click.argument("name")
@_of_run
def revoke(name: str, run_name: str | None) -> None:
    """Shut a member out for good: its key is refused by all, and its transfers stop.

    To be said on the coordinator's host, whether it runs or not. A running one tells all members at
    once; one that is started later tells them then.
    """
    click.echo(give(find_home(os.environ), run_name, Revoke(peer_id(name))))


@main.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def tokens(context: click.Context) -> None:
    """List, make and withdraw the tokens that let nodes in. Without a command: list."""
    if context.invoked_subcommand is None:
        context.invoke(list_tokens)


@tokens.command(name="list")
@_of_run
def list_tokens(run_name: str | None) -> None:
    """Show each token by its name, never the token itself: who has it may join."""
    book = stored_run(find_home(os.environ), run_name).book
    for token in book.tokens:
        fault = token.fault(wall_s())
        state = fault.partition(token.name)[2].strip() if fault else "lets nodes in"
        click.echo(f"{token.name}  {token.limits():<45} {state}")


@tokens.command()
@click.option(
    "--until", metavar="DATE", help="Good until then, e.g. 2026-12-24 or 2026-12-24T18:00."
)
@click.option("--uses", type=click.IntRange(1, 2**31), metavar="N", help="Lets in N nodes.")
@click.option("--single-use", is_flag=True, help="The same as --uses 1.")
@_of_run
def new(until: str | None, uses: int | None, single_use: bool, run_name: str | None) -> None:
    """Make a token and print its join string, alone on stdout.

    Without limits it is good for any number of nodes until it is withdrawn. DATE is in the time
    zone of this host unless it names another, as in 2026-12-24T18:00+01:00.
    """
    if single_use and uses not in {None, 1}:
        raise ConfigError("--single-use and --uses contradict each other", hint="give one of them")
    home = find_home(os.environ)
    secret = os.urandom(TOKEN_BYTES)
    until_s = _until(until) if until is not None else 0.0
    stored = stored_run(home, run_name)
    identity = keys_of(stored.folder, stored.book.run_name)
    told = give(home, run_name, NewToken(secret, until_s, 1 if single_use else uses or 0))
    click.echo(told, err=True)
    click.echo(join_string(stored.book, identity, token=secret))


def _until(typed: str) -> float:
    try:
        until_s = datetime.fromisoformat(typed).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"--until {typed} is not a date", hint="for example 2026-12-24 or 2026-12-24T18:00"
        ) from error
    if not 0.0 < until_s <= MAX_UNTIL_S:
        raise ConfigError(
            f"--until {typed} cannot be used: it must lie between 1970 and 5138",
            hint="leave it away for a token that is good for ever",
        )
    return until_s


@tokens.command()
@click.argument("token")
@_of_run
def withdraw(token: str, run_name: str | None) -> None:
    """Let nobody in by TOKEN any more, as `tokens list` names it. Who is in stays."""
    if not (1 <= len(token) <= 16 and token.isprintable()):
        raise ConfigError(f"{token[:20]!r} is not the name of a token", hint="see: tokens list")
    click.echo(give(find_home(os.environ), run_name, Withdraw(token)))


@main.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def refused(context: click.Context) -> None:
    """List the keys that are refused for what they sent, and hear one again.

    Without a command: list. Such a key has filled the coordinator's memory; it is refused over
    restarts, until it is lifted.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_refused)


@refused.command(name="list")
@_of_run
def list_refused(run_name: str | None) -> None:
    """Show each key by its first digits: whose it is, since when, and why."""
    book = stored_run(find_home(os.environ), run_name).book
    for it in book.refused.values():
        since = datetime.fromtimestamp(it.at_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        whose = book.name_of(it.key) or "a stranger"
        click.echo(f"{it.key.hex()[:16]}  {whose:<24} since {since}  {it.reason}")


@refused.command()
@click.argument("whose", metavar="KEY")
@_of_run
def lift(whose: str, run_name: str | None) -> None:
    """Hear KEY again: a member's name, or the first digits of a key as `refused list` shows it.

    To be said on the coordinator's host, whether it runs or not.
    """
    if not (1 <= len(whose) <= 64 and whose.isprintable()):
        raise ConfigError(f"{whose[:20]!r} is no name and no key", hint="see: refused list")
    click.echo(give(find_home(os.environ), run_name, Lift(whose)))


def _as_json(stored: Stored) -> Mapping[str, object]:
    book = stored.book
    return {
        "run": book.run_name,
        "running": stored.holder,
        "founders": book.founders,
        "relays": book.relays,
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
        "refused": [
            {
                "key": it.key.hex(),
                "name": book.name_of(it.key),
                "reason": it.reason,
                "at_s": it.at_s,
            }
            for it in book.refused.values()
        ],
    }

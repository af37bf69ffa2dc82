"""`peer start`: join a run and play it."""

from contextlib import closing
from pathlib import Path

import click

from peer.cli.options import display_of, node_options, options_of_run
from peer.faults.file import load_faults
from peer.options.attack import Attack
from peer.start import Asked, run_peer

__all__ = ["start"]

_SHORTCUTS = {
    "method": "method",
    "mixer": "mixer",
    "solver": "solver",
    "aggregator": "aggregator",
    "model": "model",
    "rounds": "run.rounds",
    "seed": "run.seed",
    "topology": "run.topology",
}


@click.command()
@click.option("--data", required=True, metavar="SHARD", help="A path, or a name in ./shards.")
@click.option("--gpu", default="0", show_default=True, help="Number of a GPU, or cpu.")
@click.option("--name", help="This peer's name in the run. [the shard's]")
@click.option("--method", help="Which method all peers run. [the run's, or kinfolk]")
@click.option("--mixer", help="In place of the method's own: how models are mixed.")
@click.option("--solver", help="In place of the method's own: how a peer trains.")
@click.option("--aggregator", help="In place of the method's own: what makes one model of all.")
@click.option("--model", help="A model, or package.module:factory. [the run's, or lenet5]")
@click.option("--rounds", help="How many rounds. [the run's, or 40]")
@click.option("--seed", help="Everything random derives from it. [the run's, or 0]")
@click.option("--topology", help="Who is whose neighbour. [the run's, or full]")
@click.option(
    "--alone", is_flag=True, help="After the run, train on the own data alone, to compare."
)
@click.option(
    "--attack",
    metavar="NAME[:STRENGTH]",
    help="For studies: harm the others by labelflip, noise, scale or signflip.",
)
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(0.0, 86_400.0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try to reach the coordinator.",
)
@node_options
def start(
    *,
    data: str,
    gpu: str,
    join: str | None,
    bind: str | None,
    advertise: str | None,
    name: str | None,
    out: Path | None,
    assignments: tuple[str, ...],
    faults: Path | None,
    threads: int | None,
    max_mbit: float | None,
    alone: bool,
    attack: str | None,
    patience_s: float,
    resume: bool,
    force: bool,
    as_json: bool,
    **shortcuts: str | None,
) -> int:
    """Join a run and play it: pull, mix, train, serve, round by round.

    Options of the run hold for all peers: a peer that gives none adopts what the run has, one that
    gives others is refused with the line that differs.
    """
    explicit = options_of_run(assignments)
    explicit |= {_SHORTCUTS[k]: v for k, v in shortcuts.items() if v is not None}
    asked = Asked(
        data=data,
        gpu=gpu,
        join=join,
        bind=bind,
        advertise=advertise,
        name=name,
        out=out,
        threads=threads,
        alone=alone,
        patience_s=patience_s,
        explicit=explicit,
        attack=Attack.parse(attack) if attack is not None else None,
        faults=load_faults(faults) if faults is not None else (),
        resume=resume,
        force=force,
        max_mbit=max_mbit,
    )
    with closing(display_of(as_json=as_json)) as display:
        return run_peer(asked, display)

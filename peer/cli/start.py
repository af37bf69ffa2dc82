"""`peer start`: join a run and play it."""

from contextlib import closing

import click

from peer.cli.options import NodeOptions, node_options
from peer.options.attack import Attack
from peer.start import run_peer

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
@node_options
def start(
    *,
    data: str,
    gpu: str,
    name: str | None,
    alone: bool,
    attack: str | None,
    node: NodeOptions,
    **shortcuts: str | None,
) -> int:
    """Join a run and play it: pull, mix, train, serve, round by round.

    Options of the run hold for all peers: a peer that gives none adopts what the run has, one that
    gives others is refused with the line that differs.
    """
    asked = node.asked(
        {_SHORTCUTS[key]: word for key, word in shortcuts.items() if word is not None},
        name=name,
        gpu=gpu,
        data=data,
        alone=alone,
        attack=Attack.parse(attack) if attack is not None else None,
    )
    with closing(node.display()) as display:
        return run_peer(asked, display)

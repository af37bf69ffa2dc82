"""`peer relay`: a node without data that aggregates for a run."""

from contextlib import closing

import click

from peer.cli.options import NodeOptions, node_options
from peer.options.fields import Value
from peer.start import run_relay

__all__ = ["relay"]


@click.command()
@click.option("--aggregator", metavar="NAME", help="Which one. [the run's]")
@click.option("--gpu", default="cpu", show_default=True, help="Number of a GPU, or cpu.")
@click.option("--name", help="This node's name in the run. [relay]")
@node_options
def relay(*, aggregator: str | None, gpu: str, name: str | None, node: NodeOptions) -> int:
    """Collect what the peers trained, aggregate it, and serve the outcome like any peer's.

    A run needs no relay, and never waits for one without a bound.
    """
    explicit: dict[str, Value] = {} if aggregator is None else {"aggregator": aggregator}
    asked = node.asked(explicit, name=name, gpu=gpu)
    with closing(node.display()) as display:
        return run_relay(asked, display)

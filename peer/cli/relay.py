"""`peer relay`: a node without data that aggregates for a run."""

from contextlib import closing
from pathlib import Path

import click

from peer.display import JsonDisplay, LineDisplay
from peer.options.fields import Value
from peer.start import Asked, run_relay
from protocol.manifest import parse_assignment

__all__ = ["relay"]


@click.command()
@click.option("--aggregator", metavar="NAME", help="Which one. [the run's]")
@click.option("--gpu", default="cpu", show_default=True, help="Number of a GPU, or cpu.")
@click.option("--join", metavar="STRING", help="What `coordinator start` printed. [found]")
@click.option("--bind", metavar="ADDR", help="Listen at HOST or HOST:PORT. [0.0.0.0, a free port]")
@click.option("--advertise", metavar="ADDR", help="How the others reach this node. [found out]")
@click.option("--name", help="This node's name in the run. [relay]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the run, in which this node makes its own. [runs/NAME OF RUN]",
)
@click.option(
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any option of the run, e.g. aggregator.lr=0.1. May be repeated.",
)
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads that aggregate. [what torch takes]"
)
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try for the coordinator.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def relay(
    *,
    aggregator: str | None,
    gpu: str,
    join: str | None,
    bind: str | None,
    advertise: str | None,
    name: str | None,
    out: Path | None,
    assignments: tuple[str, ...],
    threads: int | None,
    patience_s: float,
    as_json: bool,
) -> int:
    """Collect what the peers trained, aggregate it, and serve the outcome like any peer's.

    A run needs no relay, and never waits for one without a bound.
    """
    explicit: dict[str, Value] = dict(parse_assignment(text) for text in assignments)
    if aggregator is not None:
        explicit["aggregator"] = aggregator
    asked = Asked(
        data="",
        gpu=gpu,
        join=join,
        bind=bind,
        advertise=advertise,
        name=name,
        out=out,
        threads=threads,
        alone=False,
        patience_s=patience_s,
        explicit=explicit,
    )
    with closing(JsonDisplay() if as_json else LineDisplay()) as display:
        return run_relay(asked, display)

"""`peer relay`: a node without data that aggregates for a run."""

from contextlib import closing
from pathlib import Path

import click

from peer.cli.options import display_of, node_options, options_of_run
from peer.faults.file import load_faults
from peer.start import Asked, run_relay

__all__ = ["relay"]


@click.command()
@click.option("--aggregator", metavar="NAME", help="Which one. [the run's]")
@click.option("--gpu", default="cpu", show_default=True, help="Number of a GPU, or cpu.")
@click.option("--name", help="This node's name in the run. [relay]")
@click.option(
    "--patience",
    "patience_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try for the coordinator.",
)
@node_options
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
    faults: Path | None,
    threads: int | None,
    max_mbit: float | None,
    patience_s: float,
    resume: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Collect what the peers trained, aggregate it, and serve the outcome like any peer's.

    A run needs no relay, and never waits for one without a bound.
    """
    explicit = options_of_run(assignments)
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
        faults=load_faults(faults) if faults is not None else (),
        resume=resume,
        force=force,
        max_mbit=max_mbit,
    )
    with closing(display_of(as_json=as_json)) as display:
        return run_relay(asked, display)

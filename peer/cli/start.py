"""`peer start`: join a run and play it."""

from contextlib import closing
from pathlib import Path

import click

from peer.display import JsonDisplay, LineDisplay
from peer.options.fields import Value
from peer.start import Asked, run_peer
from protocol.manifest import parse_assignment

__all__ = ["start"]

_SHORTCUTS = {
    "method": "method",
    "model": "model",
    "rounds": "run.rounds",
    "seed": "run.seed",
    "topology": "run.topology",
}


@click.command()
@click.option("--data", required=True, metavar="SHARD", help="A path, or a name in ./shards.")
@click.option("--gpu", default="0", show_default=True, help="Number of a GPU, or cpu.")
@click.option("--join", metavar="STRING", help="What `coordinator start` printed. [found]")
@click.option("--bind", metavar="ADDR", help="Listen at HOST or HOST:PORT. [0.0.0.0, a free port]")
@click.option("--advertise", metavar="ADDR", help="How the others reach this peer. [found out]")
@click.option("--name", help="This peer's name in the run. [the shard's]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the run, in which this peer makes its own. [runs/NAME OF RUN]",
)
@click.option("--method", help="Which method all peers run. [the run's, or kinfolk]")
@click.option("--model", help="A model, or package.module:factory. [the run's, or lenet5]")
@click.option("--rounds", help="How many rounds. [the run's, or 40]")
@click.option("--seed", help="Everything random derives from it. [the run's, or 0]")
@click.option("--topology", help="Who is whose neighbour. [the run's, or full]")
@click.option(
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other option of the run, e.g. solver.lr=0.05. May be repeated.",
)
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads that train. [what torch takes]"
)
@click.option(
    "--alone", is_flag=True, help="After the run, train on the own data alone, to compare."
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
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
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
    threads: int | None,
    alone: bool,
    patience_s: float,
    as_json: bool,
    **shortcuts: str | None,
) -> int:
    """Join a run and play it: pull, mix, train, serve, round by round.

    Options of the run hold for all peers: a peer that gives none adopts what the run has, one that
    gives others is refused with the line that differs.
    """
    explicit: dict[str, Value] = dict(parse_assignment(text) for text in assignments)
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
    )
    with closing(JsonDisplay() if as_json else LineDisplay()) as display:
        return run_peer(asked, display)

"""`peer eval`: how good a peer's personal model is on a shard."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from peer.data import find_shard, load_shard

if TYPE_CHECKING:
    from peer.evaluate import Score
    from peer.personal import PersonalModel

__all__ = ["evaluate"]


@click.command("eval")
@click.argument("model_path", type=click.Path(path_type=Path), metavar="RUN/PEER")
@click.option("--data", required=True, metavar="SHARD", help="A path, or a name in ./shards.")
@click.option(
    "--split",
    type=click.Choice(["test", "val", "train"]),
    default="test",
    show_default=True,
    help="Of the shard.",
)
@click.option(
    "--model", metavar="PACKAGE.MODULE:FACTORY", help="Code that may be run to rebuild the model."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def evaluate(model_path: Path, data: str, split: str, model: str | None, as_json: bool) -> None:
    """Score the personal model of RUN/PEER, a peer's folder or its model.safetensors, on SHARD."""
    shard = load_shard(find_shard(data))
    from peer.personal import load_personal  # noqa: PLC0415 - loads torch, which takes seconds

    personal = load_personal(model_path, trusted=model)
    score = personal.evaluate(shard, split)
    if as_json:
        click.echo(json.dumps(_fields(personal, score, data=shard.name, split=split)))
        return
    click.echo(
        f"{personal.peer}, round {personal.round_no}, on {split} of {shard.name}: "
        f"accuracy {score.accuracy:.1%}, loss {score.loss:.4f}, {score.num_examples} samples"
    )
    counts = shard.counts(split)
    shown = Table(box=SIMPLE, pad_edge=False)
    for title in ("class", "samples", "accuracy"):
        shown.add_column(title, justify="left" if title == "class" else "right")
    for name, count, accuracy in zip(shard.classes, counts, score.class_accuracy, strict=True):
        shown.add_row(name, str(count), "-" if accuracy is None else f"{accuracy:.1%}")
    Console().print(shown)


def _fields(
    personal: "PersonalModel", score: "Score", *, data: str, split: str
) -> dict[str, object]:
    return {
        "peer": personal.peer,
        "round": personal.round_no,
        "data": data,
        "split": split,
        "samples": score.num_examples,
        "accuracy": score.accuracy,
        "loss": score.loss,
        "class_accuracy": dict(zip(personal.classes, score.class_accuracy, strict=True)),
    }

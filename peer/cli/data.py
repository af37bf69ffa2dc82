"""`peer data make` and `peer data show`: making shards, and looking at them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from peer.data.domain import Pixels
from peer.data.folder import HISTOGRAM, FolderManifest, ShardEntry, read_folder
from peer.data.listing import folder_table, said, samples_by_label, shard_table
from peer.data.make import make_shards
from peer.data.options import MakeOptions
from peer.data.partition import FORMS
from peer.data.shard import find_shard, read_stored, shard_facts
from peer.data.sources.torchvision import NAMES
from protocol.errors import ConfigError, DataError

__all__ = ["data_commands"]

MAX_ROWS = 40  # of a folder's contact sheet
MAX_LABELS = 20  # columns of it
MAX_NAMED = 12  # classes of a camp's naming on one line
PER_LABEL = 12  # images of each label in one shard's contact sheet


@click.group("data")
def data_commands() -> None:
    """Make shards of data, and look at them."""


def _domain_files(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Path]:
    """Split NAME=FILE pairs."""
    files = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise ConfigError(f"--domain {text!r} is not NAME=FILE.npz")
        if name in files:
            raise ConfigError(f"--domain {name} is given twice")
        files[name] = Path(file)
    return files


@data_commands.command("make")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="shards",
    show_default=True,
    metavar="DIR",
    help="Folder to fill; one that holds exactly these shards already is left as it is.",
)
@click.option("--force", is_flag=True, help="Replace the shards in --out, and no other file.")
@click.option("--peers", type=int, default=8, show_default=True, help="Number of shards.")
@click.option(
    "--partition", default="domain", show_default=True, metavar="HOW", help=f"One of {FORMS}."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every draw.")
@click.option(
    "--samples-per-class",
    type=int,
    metavar="N",
    help="Training samples per class and peer (on average, where the partition is uneven). "
    "Default: all that is left.",
)
@click.option(
    "--val-per-class",
    type=int,
    default=10,
    show_default=True,
    metavar="N",
    help="Validation samples per class and peer; fewer where samples are scarce.",
)
@click.option(
    "--test-per-class",
    type=int,
    default=30,
    show_default=True,
    metavar="N",
    help="Test samples per class and peer; fewer where samples are scarce.",
)
@click.option(
    "--min-samples",
    type=int,
    default=10,
    show_default=True,
    metavar="N",
    help="Training samples that each peer has at least.",
)
@click.option(
    "--camps",
    type=int,
    default=1,
    show_default=True,
    metavar="K",
    help="Peers fall into K camps that name the classes differently.",
)
@click.option(
    "--size",
    type=int,
    metavar="PIXELS",
    help="Sides of the images. Default: 28 with digits, else as they are.",
)
@click.option(
    "--channels",
    type=int,
    help="1 (grey) or 3 (RGB). Default: as they are, 3 where domains differ.",
)
@click.option(
    "--synth-per-class",
    type=int,
    default=500,
    show_default=True,
    metavar="N",
    help="Images of each digit that synthdigits renders.",
)
@click.option(
    "--domain",
    "domains",
    multiple=True,
    metavar="NAME=FILE.npz",
    callback=_domain_files,
    help="A further domain from a file: NAME_x and NAME_y, or x and y, or x_train, y_train ...",
)
@click.option(
    "--usps",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Short for --domain usps=FILE.",
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="NAME",
    help=f"A further domain from torchvision: {', '.join(NAMES)}.",
)
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where torchvision's data sets lie.",
)
@click.option("--download", is_flag=True, help="Let torchvision fetch what is not there.")
def make(out: Path, *, force: bool, **options: Any) -> None:  # noqa: ANN401 - click's
    """Make shards for peers from real images.

    SOURCE is digits (the four domains mnist, mnistm, optdigits and synthdigits, which need no
    download), or some of the four. More domains: --domain, --usps, --dataset.
    """
    manifest = make_shards(MakeOptions(**options), out, force=force)
    _print_folder(manifest, out)
    click.echo(f"next: peer start --data {out / manifest.shards[0].name}")


@data_commands.command("show")
@click.argument("what", metavar="DIR_OR_SHARD")
@click.option(
    "--png",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw sample images into FILE.",
)
@click.option(
    "--histogram",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw samples per shard and label into FILE.",
)
def show(what: str, png: Path | None, histogram: Path | None) -> None:
    """Print what a folder of shards, or one shard, holds; every byte is checked.

    A shard is a path, or a name in ./shards or $KINFOLK_DATA. Any .npz that `peer start --data`
    takes is shown too.
    """
    if Path(what).is_dir():
        _show_folder(Path(what), png, histogram)
    else:
        _show_shard(find_shard(what), png, histogram)


def _show_folder(folder: Path, png: Path | None, histogram: Path | None) -> None:
    manifest = read_folder(folder)
    first_images = []
    for shard in manifest.shards:
        card, stored = read_stored(folder / f"{shard.name}.npz")
        if card.digest != shard.digest:
            raise DataError(
                f"{shard.name} has digest {card.digest[:12]}, the manifest of {folder} says "
                f"{shard.digest[:12]}",
                hint="it is not the shard that was made there: make the folder anew",
            )
        first_images.append(samples_by_label(stored["train"], len(manifest.classes), 1))
    _print_folder(manifest, folder)
    if png is not None:
        rows = [
            (said(shard), [found[0] if found else None for found in images[:MAX_LABELS]])
            for shard, images in zip(manifest.shards[:MAX_ROWS], first_images, strict=False)
        ]
        title = "one training sample per shard and label"
        _draw_sheet(rows, manifest.classes[:MAX_LABELS], title, png)
    if histogram is not None:
        _draw_histogram(manifest.shards, manifest.classes, histogram)


def _show_shard(path: Path, png: Path | None, histogram: Path | None) -> None:
    card, stored = read_stored(path)
    facts = shard_facts(path)
    entry = ShardEntry(facts.name, card.digest, card.domain, card.camp, facts.counts)
    channels, height, width = facts.input_shape
    click.echo(f"{path}: domain {card.domain}, camp {card.camp}")
    click.echo(f"images {channels}x{height}x{width}, read as {card.transform}")
    click.echo(f"source: {card.source}")
    click.echo(f"digest {card.digest[:16]}, checked")
    console = Console(highlight=False)
    console.print(shard_table(entry, card.classes, width=console.width))
    if card.camp:
        _print_naming(card.camp, card.naming, card.classes)
    if png is not None:
        by_label = samples_by_label(stored["train"], len(card.classes), PER_LABEL)[:MAX_ROWS]
        rows = [
            (f"label {name}", images) for name, images in zip(card.classes, by_label, strict=False)
        ]
        _draw_sheet(rows, (), f"{said(entry)}: training samples", png)
    if histogram is not None:
        _draw_histogram([entry], card.classes, histogram)


def _print_folder(manifest: FolderManifest, folder: Path) -> None:
    channels, height, width = manifest.input_shape
    click.echo(
        f"{folder}: {len(manifest.shards)} shards, images {channels}x{height}x{width}, "
        f"partition {manifest.options.get('partition')}, seed {manifest.seed}"
    )
    console = Console(highlight=False)
    console.print(folder_table(manifest.shards, manifest.classes, width=console.width))
    for camp, naming in enumerate(manifest.namings[1:], start=1):
        _print_naming(camp, naming, manifest.classes)
    homes = {shard.domain for shard in manifest.shards}
    if manifest.options.get("partition") == "domain":
        for name in sorted(manifest.sources.keys() - homes):
            click.echo(f"domain {name} has no peer: there are more domains than peers")
    if (folder / HISTOGRAM).is_file():
        click.echo(f"picture: {folder / HISTOGRAM}")


def _print_naming(camp: int, naming: Sequence[int], classes: Sequence[str]) -> None:
    """Say which class a camp calls what, as far as a line goes."""
    end = " ..." if len(classes) > MAX_NAMED else ""
    true = " ".join(classes[:MAX_NAMED]) + end
    said_for = " ".join(classes[label] for label in naming[:MAX_NAMED]) + end
    click.echo(f"camp {camp} says {said_for} for {true}")


def _draw_sheet(
    rows: Sequence[tuple[str, Sequence[Pixels | None]]],
    columns: Sequence[str],
    title: str,
    path: Path,
) -> None:
    from peer.data.picture import draw_contact_sheet  # noqa: PLC0415 - an extra, and slow

    draw_contact_sheet(rows, columns, title, path)
    click.echo(f"picture: {path}")


def _draw_histogram(shards: Sequence[ShardEntry], classes: Sequence[str], path: Path) -> None:
    from peer.data.picture import draw_histogram  # noqa: PLC0415 - an extra, and slow

    draw_histogram(shards, classes, path)
    click.echo(f"picture: {path}")

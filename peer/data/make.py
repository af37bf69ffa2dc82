"""Making a folder of shards: from options to images, to peers, to files."""

import importlib.util
import json
from collections.abc import Mapping
from hashlib import blake2b, file_digest
from pathlib import Path

import numpy as np

from peer.data.allot import Allotment, Stock, Wanted, allot
from peer.data.camps import camp_of, namings
from peer.data.card import SPLITS, Card
from peer.data.domain import Domain, Pixels, alike
from peer.data.folder import (
    HISTOGRAM,
    FolderManifest,
    ShardEntry,
    filling,
    publish,
    read_folder,
)
from peer.data.layout import Rows
from peer.data.options import MakeOptions
from peer.data.partition import parse_partition
from peer.data.shard import Split, read_stored, save_shard
from peer.data.sources import mnist, mnistm, npz, optdigits, synthdigits, torchvision
from protocol.errors import DataError

__all__ = ["make_shards"]

RECIPE = 1  # raised whenever equal options come to mean other shards
DIGIT_SIZE = 28  # pixels, where digits of several sizes meet
MIXED = "mixed"  # the domain of a peer whose samples come from several


def make_shards(options: MakeOptions, out: Path, *, force: bool = False) -> FolderManifest:
    """Fill a folder with one shard for each peer, a manifest and a histogram.

    A folder that holds exactly these shards already is left as it is. With `force`, shards of an
    earlier make are replaced; files that are not ours stay in any case.

    Raises:
        OperatorError: the options cannot be met, a source cannot be read, an extra is missing, or
            the folder is taken.
    """
    inputs = {str(path): _file_digest(path) for path in options.files.values()}
    if (made := _made_already(options, inputs, out)) is not None:
        return made
    with filling(out, force=force) as workspace:
        domains = _gathered(options)
        manifest = _write(options, inputs, domains, workspace)
        if importlib.util.find_spec("matplotlib"):
            from peer.data.picture import draw_histogram  # noqa: PLC0415 - an optional extra, slow

            draw_histogram(manifest.shards, manifest.classes, workspace / HISTOGRAM)
        publish(workspace, manifest)
    return manifest


def _made_already(
    options: MakeOptions, inputs: Mapping[str, str], out: Path
) -> FolderManifest | None:
    """Find the manifest of a folder that holds exactly what is asked for, every byte checked."""
    try:
        manifest = read_folder(out)
        asked = (RECIPE, json.loads(json.dumps(options.to_mapping())), inputs)
        if (manifest.recipe, manifest.options, manifest.inputs) != asked:
            return None
        for shard in manifest.shards:
            card, _ = read_stored(out / f"{shard.name}.npz")
            if card.digest != shard.digest:
                return None
    except DataError:
        return None
    return manifest


def _gathered(options: MakeOptions) -> list[Domain]:
    """Read or render every domain, of one image shape and one list of classes."""
    wanted = options.digit_sources
    domains = []
    for source in wanted:
        match source:
            case "mnist":
                domains.append(mnist.load(half=0 if "mnistm" in wanted else None))
            case "mnistm":
                digits = mnist.load(half=1 if "mnist" in wanted else None)
                domains.append(mnistm.load(digits, _stream(options.seed, source)))
            case "optdigits":
                domains.append(optdigits.load())
            case _:
                rng = _stream(options.seed, source)
                domains.append(synthdigits.load(options.synth_per_class, rng))
    domains += [npz.load(name, path) for name, path in options.files.items()]
    if options.data_root is not None:
        root, size = options.data_root, options.size
        domains += [
            torchvision.load(name, root, size=size, download=options.download)
            for name in options.datasets
        ]
    return alike(
        domains,
        size=options.size or (DIGIT_SIZE if wanted else None),
        channels=options.channels,
    )


def _write(
    options: MakeOptions, inputs: Mapping[str, str], domains: list[Domain], workspace: Path
) -> FolderManifest:
    """Deal the domains' samples to peers and write one shard for each."""
    classes = domains[0].classes
    stock = Stock(
        labels=np.concatenate([domain.y for domain in domains]),
        domains=np.repeat(np.arange(len(domains)), [len(domain.y) for domain in domains]),
        for_test=np.concatenate([domain.test_mask() for domain in domains]),
        classes=classes,
        domain_names=tuple(domain.name for domain in domains),
    )
    x = np.concatenate([domain.x for domain in domains])
    partition = parse_partition(options.partition)
    allotments = allot(
        stock,
        Wanted(options.samples_per_class, options.val_per_class, options.test_per_class),
        peers=options.peers,
        partition=partition,
        min_samples=options.min_samples,
        rng=_stream(options.seed, "allot"),
    )
    names = namings(len(classes), options.camps, _stream(options.seed, "camps"))
    order = _stream(options.seed, "order")
    entries = []
    for peer, allotment in enumerate(allotments):
        num_domains = len(domains) if partition.kind == "domain" else 1
        camp = camp_of(peer, num_domains=num_domains, num_camps=options.camps)
        homes = [domains[i] for i in np.unique(stock.domains[allotment.train])]
        card = Card(
            domain=homes[0].name if len(homes) == 1 else MIXED,
            classes=classes,
            source="; ".join(home.source for home in homes),
            camp=camp,
            naming=names[camp],
        )
        splits = _splits(allotment, x, np.array(names[camp])[stock.labels], order)
        name = f"shard{peer}"
        saved = save_shard(workspace / f"{name}.npz", card, splits)
        entries.append(_entry(name, saved, splits))
    _, height, width, channels = x.shape
    return FolderManifest(
        seed=options.seed,
        recipe=RECIPE,
        options=options.to_mapping(),
        inputs=inputs,
        sources={domain.name: domain.source for domain in domains},
        classes=classes,
        input_shape=(channels, height, width),
        namings=tuple(names),
        shards=tuple(entries),
    )


def _splits(
    allotment: Allotment, x: Pixels, labels: Rows, rng: np.random.Generator
) -> dict[str, Split]:
    """Cut out a peer's splits, shuffled, so that the first samples of a shard are of all kinds."""
    rows = {split: rng.permutation(getattr(allotment, split)) for split in SPLITS}
    return {split: Split(x[kept], labels[kept]) for split, kept in rows.items()}


def _entry(name: str, card: Card, splits: Mapping[str, Split]) -> ShardEntry:
    num_classes = len(card.classes)
    counts = {
        split: tuple(np.bincount(part.y, minlength=num_classes).tolist())
        for split, part in splits.items()
    }
    return ShardEntry(name, card.digest, card.domain, card.camp, counts)


def _stream(seed: int, purpose: str) -> np.random.Generator:
    """One independent generator per purpose, so that a new source moves no other's draws."""
    digest = blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest))


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, blake2b).hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None

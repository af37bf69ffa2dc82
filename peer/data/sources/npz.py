"""Any person's `.npz` as one more domain; which arrays are taken, docs/data.md says."""

from pathlib import Path

import numpy as np

from peer.data.archive import Array, opened
from peer.data.card import SPLITS
from peer.data.domain import Domain, Pixels, as_bytes
from peer.data.layout import Rows, as_images, checked_labels, class_names, pairs
from peer.data.shard import CARD, read_stored
from protocol.errors import DataError

__all__ = ["load"]


def load(name: str, path: Path) -> Domain:
    """Read a file's images and labels; its test split, if it names one, stays for tests.

    Raises:
        DataError: not an `.npz`, no pair of arrays that is plainly meant, or unusable ones.
    """
    with opened(path) as archive:
        if CARD in archive:
            return _from_shard(name, path)
        found = pairs(archive, name)
        if not {"train", ""} & found.keys():
            raise DataError(
                f"{path} holds {', '.join(archive.names) or 'nothing'}",
                hint=f"domain {name} needs {name}_x and {name}_y, or x and y, or x_train, y_train",
            )
        labels = [archive.array(y) for _, y in found.values()]
        classes = class_names(archive, labels)
        parts = [
            _part(archive.array(x), y, f"{path}: {x}", len(classes))
            for (x, _), y in zip(found.values(), labels, strict=True)
        ]
        is_named = "classes" in archive
    shapes = {x.shape[1:] for x, _ in parts}
    if len(shapes) > 1 or not sum(len(y) for _, y in parts):
        raise DataError(f"{path} has no samples, or of different shapes: {sorted(shapes)}")
    return Domain(
        name=name,
        x=np.concatenate([x for x, _ in parts]),
        y=np.concatenate([y for _, y in parts]),
        classes=classes,
        source=f"a person's own file, {path.name}",
        is_named=is_named,
        for_test=np.repeat([split == "test" for split in found], [len(y) for _, y in parts]),
    )


def _part(x: Array, y: Array, where: str, num_classes: int) -> tuple[Pixels, Rows]:
    images = as_bytes(as_images(x, where), where)
    labels = checked_labels(y, num_classes, f"{where}'s labels")
    if len(images) != len(labels):
        raise DataError(f"{where} has {len(images)} images and {len(labels)} labels")
    return images, labels


def _from_shard(name: str, path: Path) -> Domain:
    """Take a shard's samples together, under the true labels where its camp renamed them."""
    card, stored = read_stored(path)
    true_label = np.argsort(np.array(card.naming))
    return Domain(
        name=name,
        x=as_bytes(np.concatenate([stored[split].x for split in SPLITS]), str(path)),
        y=true_label[np.concatenate([stored[split].y for split in SPLITS])],
        classes=card.classes,
        source=card.source,
        for_test=np.repeat([False, False, True], [len(stored[split]) for split in SPLITS]),
    )

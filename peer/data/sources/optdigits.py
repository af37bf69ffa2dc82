"""Optdigits: 1,797 handwritten digits of 8x8 (Alpaydin and Kaynak 1998), inside scikit-learn."""

import numpy as np

from peer.data.domain import DIGITS, Domain, missing_extra

__all__ = ["load"]


def load() -> Domain:
    """Read the images, their 17 grey levels spread over 0 to 255.

    Raises:
        OperatorError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - an optional extra, and slow
    except ImportError:
        raise missing_extra("scikit-learn") from None
    bunch = load_digits()
    return Domain(
        name="optdigits",
        x=np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None],
        y=bunch.target.astype(np.int64),
        classes=DIGITS,
        source="Optdigits (Alpaydin and Kaynak 1998, UCI), the test part inside scikit-learn",
    )

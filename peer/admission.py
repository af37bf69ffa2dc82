"""Is a neighbour's point fit to be mixed? Formulas only; the caller reads the tensors."""

import math
from collections.abc import Sequence
from statistics import median

from protocol.params import Params

__all__ = ["first_unfinite", "norm_fault"]

MIN_FOR_SCORE = 5  # neighbours from which on they are compared with one another
MAX_SCORE = 8.0  # robust z-score of the logarithm of the norm
MIN_SPREAD = (
    0.1  # of that logarithm: peers that agree closely are not to refuse one that is 2 % off
)
MAX_RATIO = 10.0  # to the own norm, below MIN_FOR_SCORE
_MAD_TO_SIGMA = 1.4826  # for a normal distribution


def first_unfinite(params: Params) -> str | None:
    """Name of the first tensor that holds a NaN or an infinity."""
    for name, tensor in params.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return name
    return None


def norm_fault(norm: float, own: float, others: Sequence[float]) -> str:
    """Why this norm is absurd; empty if it is not.

    Args:
        norm: Euclidean norm of the neighbour's parameters.
        own: of the own parameters.
        others: of the other neighbours' newest, as far as they are known.
    """
    if not math.isfinite(norm):
        return f"norm {norm}"
    if len(others) + 1 >= MIN_FOR_SCORE:
        logs = [math.log(max(n, 1e-300)) for n in others]
        middle = median(logs)
        spread = max(_MAD_TO_SIGMA * median(abs(x - middle) for x in logs), MIN_SPREAD)
        score = abs(math.log(max(norm, 1e-300)) - middle) / spread
        if score <= MAX_SCORE:
            return ""
        return f"norm {norm:.3g} where the others have {math.exp(middle):.3g} (score {score:.0f})"
    if own > 0.0 and not own / MAX_RATIO <= norm <= own * MAX_RATIO:
        return f"norm {norm:.3g} where the own is {own:.3g} (a ratio above {MAX_RATIO:g})"
    return ""

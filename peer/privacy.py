"""What differentially private training costs, and whether a model can be trained so at all.

The accountant is that of opacus: Renyi differential privacy of the subsampled Gaussian mechanism
(Mironov et al., 2019, arXiv 1908.10530) over all steps so far. Two data sets are neighbours when
one has one example more.
"""

import importlib.util
import warnings
from functools import lru_cache

from torch.nn.modules.batchnorm import _BatchNorm

from peer.models.split import SplitModel
from peer.options.solvers import PrivacyOptions
from peer.seeding import forked
from peer.solvers.base import Batch, Task
from peer.solvers.private import clipped_sum
from protocol.errors import ConfigError

__all__ = ["check_private", "epsilon"]

# Orders at which the divergence is followed; the best of them counts, so more can only tighten.
_ORDERS = (
    *(1.0 + x / 10.0 for x in range(1, 100)),
    *(float(x) for x in range(12, 64)),
    *(2.0**x for x in range(6, 13)),
)


def epsilon(options: PrivacyOptions, *, num_batches: int, num_steps: int) -> float:
    """Say how much of one example `num_steps` steps have told, at `options.dp_delta`.

    Args:
        options: with noise.
        num_batches: in a pass; a step draws each example with probability 1 / num_batches.
        num_steps: over all rounds, >= 0.

    Raises:
        ConfigError: opacus is not installed.
    """
    _require_accountant()
    from opacus.accountants.analysis import rdp  # noqa: PLC0415 - an extra, and 1.5 s to load

    if num_steps == 0:
        return 0.0
    spent = [num_steps * once for once in _of_one_step(options.dp_noise, num_batches)]
    with warnings.catch_warnings():
        # The best order is at an end of the list: the bound holds, it is just not the tightest.
        warnings.simplefilter("ignore", UserWarning)
        found, _ = rdp.get_privacy_spent(orders=_ORDERS, rdp=spent, delta=options.dp_delta)
    return max(0.0, float(found))


@lru_cache(maxsize=16)
def _of_one_step(noise: float, num_batches: int) -> tuple[float, ...]:
    """Renyi divergence at each order; it adds up over steps."""
    from opacus.accountants.analysis import rdp  # noqa: PLC0415 - as above

    found = rdp.compute_rdp(
        q=1.0 / num_batches, noise_multiplier=noise, steps=1, orders=list(_ORDERS)
    )
    return tuple(float(divergence) for divergence in found)


def check_private(options: PrivacyOptions, model: SplitModel, task: Task) -> None:
    """Refuse what private training cannot do, before the first round.

    Raises:
        ConfigError: there is no accountant, the model mixes the examples of a batch, or its
            gradients cannot be taken for one example at a time.
    """
    _require_accountant()
    noise = f"solver.dp_noise = {options.dp_noise}"
    if any(isinstance(module, _BatchNorm) for module in model.module.modules()):
        raise ConfigError(
            f"{noise} cannot be used with model {model.name}: BatchNorm mixes the examples of a "
            "batch, so that the share of a single one has no bound",
            hint="take model.norm = group, or a model without BatchNorm",
        )
    inputs, targets = task.everything
    one = Batch(inputs[:1], targets[:1])
    try:
        with forked(0):  # dropout draws
            clipped_sum(task, model.start.params, model.start.buffers, one, options.dp_clip)
    except RuntimeError as error:
        said = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{noise} cannot be used with model {model.name}: torch takes no gradient of it for "
            f"each example alone ({said})",
            hint="operations in place and decisions on values of tensors are what it cannot take",
        ) from None


def _require_accountant() -> None:
    if importlib.util.find_spec("opacus") is None:
        raise ConfigError(
            "solver.dp_noise needs opacus to count what privacy is left, and it is not installed",
            hint="pip install 'kinfolk[dp]'",
        )

"""Differentially private descent: each example's gradient is clipped, and the sum gets noise.

DP-SGD, Abadi et al., 2016, arXiv 1607.00133, Algorithm 1. Each step draws every example with
probability 1 / (batches in a pass), independently (Poisson sampling, which the accountant assumes),
so batches differ in size and may be empty. What a step adds is divided by the expected size: the
true one is no public knowledge.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from peer.options.solvers import PrivacyOptions
from peer.solvers.base import Batch, Task
from peer.solvers.descent import Passes, Slope, shuffled, slope
from peer.solvers.keystream import KEY_BYTES, Keystream
from protocol.params import Params

__all__ = ["Way", "clipped_sum", "way_of"]

_TINY = 1e-300  # a gradient of zero stays as it is
CHUNK_NUMBERS = 1 << 25  # of per-example gradients at once: 128 MiB in float32


@dataclass(frozen=True, slots=True)
class Way:
    """What private descent follows, and which batches it sees."""

    follow: Slope
    passes: Passes


def way_of(options: PrivacyOptions, seed: int) -> Way:
    """The plain slope and shuffled passes; or the private ones, where the options ask for them.

    With `dp_chance = secret` the noise and the choice of examples come from a key of this process
    that is kept nowhere. They are then no function of the seed: everybody knows that of the run.
    """
    if not options.is_private:
        return Way(slope, shuffled)
    secret = options.dp_chance == "secret"
    chance = Keystream(os.urandom(KEY_BYTES)) if secret else Keystream.seeded(seed)
    return Way(_noisy(options, chance), _sampled(chance))


def _sampled(chance: Keystream) -> Passes:
    def passes(task: Task, _seed: int) -> Iterator[Batch]:
        inputs, targets = task.everything
        for _ in range(task.num_batches):
            drawn = chance.uniform(len(targets)) < 1.0 / task.num_batches
            chosen = drawn.to(targets.device)
            yield Batch(inputs[chosen], targets[chosen])

    return passes


def _noisy(options: PrivacyOptions, chance: Keystream) -> Slope:
    def at(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        expected = task.num_examples / task.num_batches
        loss, sums = clipped_sum(task, params, buffers, batch, options.dp_clip)
        deviation = options.dp_noise * options.dp_clip
        noisy = {}
        for name, tensor in sums.items():
            noise = chance.normal(tensor.numel()).reshape(tensor.shape).mul_(deviation)
            noisy[name] = (tensor + noise.to(tensor)).div_(expected)
        return loss / expected, noisy, buffers

    return at


def clipped_sum(
    task: Task, params: Params, buffers: Params, batch: Batch, clip: float
) -> tuple[Tensor, Params]:
    """Sum of the losses (), nats; and of the gradients, none of them longer than `clip`.

    A gradient that is not finite counts as zero: it must not move the sum by more than `clip`
    either. Buffers do not change.

    Args:
        task: whose loss; it must be one of each example alone.
        params: where.
        buffers: as they are.
        batch: any number of examples, none too.
        clip: longest gradient of one example, over all tensors together, > 0.
    """

    def loss_of(here: Params, example: Tensor, target: Tensor) -> Tensor:
        loss, _ = task.loss(here, buffers, Batch(example.unsqueeze(0), target.unsqueeze(0)))
        return loss

    each = vmap(grad_and_value(loss_of), in_dims=(None, 0, 0), randomness="different")
    at_once = max(1, CHUNK_NUMBERS // max(1, sum(t.numel() for t in params.values())))
    here = {name: tensor.detach() for name, tensor in params.items()}
    losses = batch.inputs.new_zeros((), dtype=torch.float32)
    sums = {name: torch.zeros_like(tensor) for name, tensor in here.items()}
    for first in range(0, len(batch.targets), at_once):
        chosen = slice(first, first + at_once)
        grads, each_loss = each(here, batch.inputs[chosen], batch.targets[chosen])
        lengths = _lengths(grads)
        finite = lengths.isfinite()
        factors = (clip / lengths[finite].clamp_min(_TINY)).clamp(max=1.0)  # (finite examples,)
        losses = losses + each_loss.detach().float().sum()
        for name, grad in grads.items():
            usable = grad.detach() if len(factors) == len(finite) else grad.detach()[finite]
            sums[name] += torch.tensordot(factors.to(grad.dtype), usable, dims=1)
    return losses, sums


def _lengths(grads: Params) -> Tensor:
    """Euclidean norm of each example's gradient over all tensors: (examples,) float64.

    Within a tensor in its own precision, float32 at least: float64 would take 20 times as long.
    """
    each = [
        torch.linalg.vector_norm(
            g.detach().flatten(1), dim=1, dtype=torch.promote_types(g.dtype, torch.float32)
        ).double()
        for g in grads.values()
    ]
    whole: Tensor = torch.linalg.vector_norm(torch.stack(each), dim=0)
    return whole

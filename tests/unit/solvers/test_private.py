"""Private descent: clipped example by example, with noise that is as large as it says."""

import math

import pytest
import torch
from torch import Tensor, nn

from peer.methods import SOLVERS
from peer.models.describe import describe
from peer.options.fields import Value, build
from peer.options.solvers import (
    SOLVERS as ENTRIES,
)
from peer.options.solvers import (
    DescentOptions,
    FedProxOptions,
    PrivacyOptions,
    SgdOptions,
)
from peer.seeding import forked
from peer.solvers import private
from peer.solvers.base import Batch
from peer.solvers.fedprox import FedProx
from peer.solvers.keystream import Keystream
from peer.solvers.private import clipped_sum, way_of
from peer.solvers.sgd import Sgd
from peer.task import LocalTask
from protocol.params import NO_STATE, Params, add, norm, scale, sub
from tests.unit.methods.making import CPU, silent, small_model, small_task

NOISE = PrivacyOptions(dp_noise=2.0, dp_clip=0.5, dp_chance="seeded")


def double_task(size: int = 12, batch_size: int = 4) -> LocalTask:
    return small_task(small_model(dtype=torch.float64), size=size, batch_size=batch_size)


def gradient_of_one(task: LocalTask, example: Tensor, target: Tensor) -> tuple[float, Params]:
    here = {n: t.clone().requires_grad_() for n, t in task.model.start.params.items()}
    loss, _ = task.loss(here, {}, Batch(example[None], target[None]))
    return loss.item(), dict(zip(here, torch.autograd.grad(loss, list(here.values())), strict=True))


def naive_sum(task: LocalTask, batch: Batch, clip: float) -> tuple[float, Params]:
    """One example after another, by plain autograd."""
    losses, sums = 0.0, scale(task.model.start.params, 0.0)
    for example, target in zip(*batch, strict=True):
        loss, grad = gradient_of_one(task, example, target)
        losses += loss
        sums = add(sums, grad, factor=min(1.0, clip / norm(grad)))
    return losses, sums


def close(left: Params, right: Params, tolerance: float = 1e-9) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert torch.allclose(left[name], right[name], rtol=0.0, atol=tolerance), name


@pytest.mark.parametrize("clip", [0.1, 1.0, 1000.0])
@pytest.mark.parametrize("chunk", [1, 1 << 25])
def test_the_sum_is_that_of_a_loop_over_examples(
    clip: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "CHUNK_NUMBERS", chunk)
    task = double_task()
    batch = task.everything
    losses, sums = clipped_sum(task, task.model.start.params, {}, batch, clip)
    expected_losses, expected = naive_sum(task, batch, clip)
    assert losses.item() == pytest.approx(expected_losses, rel=1e-6)
    close(sums, expected)


def test_one_example_moves_the_sum_by_no_more_than_the_clip() -> None:
    task = double_task()
    whole = task.everything
    params = task.model.start.params
    _, sums = clipped_sum(task, params, {}, whole, 0.25)
    for left_out in range(len(whole.targets)):
        kept = torch.arange(len(whole.targets)) != left_out
        rest = Batch(whole.inputs[kept], whole.targets[kept])
        _, without = clipped_sum(task, params, {}, rest, 0.25)
        assert norm(sub(sums, without)) <= 0.25 * (1.0 + 1e-9)


def test_no_example_and_no_finite_gradient_sum_to_nothing() -> None:
    task = double_task()
    inputs, targets = task.everything
    params = task.model.start.params
    for batch in (
        Batch(inputs[:0], targets[:0]),
        Batch(torch.full_like(inputs[:2], math.nan), targets[:2]),
        Batch(torch.full_like(inputs[:2], math.inf), targets[:2]),
    ):
        _, sums = clipped_sum(task, params, {}, batch, 1.0)
        assert norm(sums) == 0.0


def test_a_step_is_the_clipped_sum_and_noise_by_the_expected_size() -> None:
    task = double_task(size=10, batch_size=4)  # 3 batches: 10 / 3 examples are expected
    batch = Batch(task.everything.inputs[:5], task.everything.targets[:5])
    params = task.model.start.params
    loss, grad, buffers = way_of(NOISE, seed=3).follow(task, params, {}, batch)
    losses, sums = naive_sum(task, batch, 0.5)
    chance = Keystream.seeded(3)
    expected = {
        name: (total + 1.0 * chance.normal(total.numel()).reshape(total.shape)) * 3 / 10
        for name, total in sums.items()  # deviation 2.0 x 0.5
    }
    close(grad, expected)
    assert loss.item() == pytest.approx(losses * 3 / 10, rel=1e-6)
    assert buffers == {}


def test_examples_are_drawn_independently_with_the_rate_of_a_batch() -> None:
    task = double_task(size=40, batch_size=10)
    way = way_of(NOISE, seed=0)
    sizes = [len(b.targets) for seed in range(100) for b in way.passes(task, seed)]
    assert len(sizes) == 400
    mean = sum(sizes) / 400
    variance = sum((size - mean) ** 2 for size in sizes) / 399
    assert mean == pytest.approx(10.0, abs=0.55)  # 40 / 4; 4 deviations of the mean
    assert variance == pytest.approx(40 * 0.25 * 0.75, rel=0.3)  # binomial; 4 deviations


def test_without_noise_nothing_is_private() -> None:
    task = double_task()
    plain, _ = Sgd(SgdOptions(descent=DescentOptions())).train(
        NO_STATE, task.model.start, task, 3, silent
    )
    off = Sgd(SgdOptions(privacy=PrivacyOptions(dp_clip=0.001)))
    same, _ = off.train(NO_STATE, task.model.start, task, 3, silent)
    close(same.params, plain.params, 0.0)


def test_fedprox_pulls_a_private_step_as_any_other() -> None:
    task = double_task()
    options = FedProxOptions(mu=0.0, privacy=NOISE)
    one, _ = FedProx(options).train(NO_STATE, task.model.start, task, 3, silent)
    other, _ = Sgd(SgdOptions(privacy=NOISE)).train(NO_STATE, task.model.start, task, 3, silent)
    close(one.params, other.params, 0.0)


@pytest.mark.parametrize("solver", ["sgd", "fedprox", "fedconst"])
def test_the_seed_gives_the_noise_only_where_that_is_asked_for(solver: str) -> None:
    def train(chance: str, seed: int) -> Params:
        flat: dict[str, Value] = {"dp_noise": 1.0, "dp_chance": chance}
        made = SOLVERS[solver](build(ENTRIES[solver].options, flat))
        task = double_task()
        with forked(seed):
            trained, _ = made.train(NO_STATE, task.model.start, task, seed, silent)
        return trained.params

    def differ(one: Params, other: Params) -> bool:
        return norm(sub(one, other)) > 1e-3

    assert norm(sub(train("seeded", 1), train("seeded", 1))) == 0.0
    assert differ(train("seeded", 1), train("seeded", 2))
    assert differ(train("secret", 1), train("secret", 1))


def test_a_private_round_in_bfloat16_and_with_dropout_works() -> None:
    with forked(0):
        layers = [nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 3)]
        model = describe("dropping", nn.Sequential(*layers), (1, 6, 6), 3).to(CPU)
    task = small_task(model, precision="bf16")
    with forked(1):
        trained, _ = Sgd(SgdOptions(privacy=NOISE)).train(NO_STATE, model.start, task, 1, silent)
    assert math.isfinite(norm(trained.params))
    assert norm(sub(trained.params, model.start.params)) > 0.0


# -- the noise itself -----------------------------------------------------------------------------


def test_the_stream_is_uniform_and_normal() -> None:
    stream = Keystream.seeded(0)
    uniform = stream.uniform(100_000)
    assert 0.0 < uniform.min().item() < 1e-4
    assert 1.0 - 1e-4 < uniform.max().item() < 1.0
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.004)
    assert uniform.var().item() == pytest.approx(1 / 12, abs=0.001)
    normal = stream.normal(100_001)
    assert len(normal) == 100_001
    assert normal.mean().item() == pytest.approx(0.0, abs=0.015)
    assert normal.var().item() == pytest.approx(1.0, abs=0.02)
    assert normal.pow(4).mean().item() == pytest.approx(3.0, abs=0.15)
    for threshold, share in ((1.0, 0.158655), (2.0, 0.022750)):
        assert (normal > threshold).double().mean().item() == pytest.approx(share, abs=0.005)
    assert torch.corrcoef(torch.stack([normal[:50_000], normal[50_000:-1]]))[0, 1].abs() < 0.02


def test_a_stream_is_its_key_and_does_not_repeat() -> None:
    assert torch.equal(Keystream(bytes(32)).uniform(8), Keystream(bytes(32)).uniform(8))
    stream = Keystream(bytes(32))
    assert not torch.equal(stream.uniform(8), stream.uniform(8))
    assert not torch.equal(Keystream(b"\1" * 32).uniform(8), Keystream(bytes(32)).uniform(8))
    # AES-256 of a zero key and a zero counter; NIST's known answer begins dc95c078a2408989
    first = int.from_bytes(bytes.fromhex("dc95c078a2408989"), "little") >> 11
    assert Keystream(bytes(32)).uniform(1).item() == (first + 0.5) * 2.0**-53

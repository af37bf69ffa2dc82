"""A pass with a look inside: features, watched layers, and what it shares with the plain pass."""

from typing import Literal

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from peer.models.split import Mode
from tests.unit.methods.making import small_model, small_task


@pytest.mark.parametrize("mode", Mode)
def test_logits_and_buffers_are_those_of_the_plain_pass(mode: Mode) -> None:
    model = small_model("batch")
    start, inputs = model.start, torch.rand(3, 1, 6, 6)
    logits, moved = model.logits(start.params, start.buffers, inputs, mode)
    seen = model.run(start.params, start.buffers, inputs, mode)
    assert torch.equal(seen.logits, logits)
    assert all(torch.equal(seen.buffers[name], tensor) for name, tensor in moved.items())
    assert not seen.seen
    w = start.params
    torch.testing.assert_close(seen.features @ w["head.weight"].T + w["head.bias"], logits)


def test_a_watched_layer_shows_what_went_in_and_what_came_out() -> None:
    model = small_model("batch")
    start, inputs = model.start, torch.rand(3, 1, 6, 6)
    seen = model.run(
        start.params, start.buffers, inputs, Mode.EVALUATE, ("body.0", "body.2", "head")
    )
    assert list(seen.seen) == ["body.0", "body.2", "head"]
    assert torch.equal(seen.seen["body.0"][0], inputs)
    assert torch.equal(torch.relu(seen.seen["body.2"][0]), seen.seen["body.2"][1])
    assert torch.equal(seen.seen["head"][0], seen.features)
    assert torch.equal(seen.seen["head"][1], seen.logits)


def test_nobody_looks_on_after_the_pass() -> None:
    model = small_model()
    start = model.start
    model.run(start.params, start.buffers, torch.rand(2, 1, 6, 6), Mode.PROBE, ("body",))
    assert not any(layer._forward_hooks for layer in model.module.modules())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_task_looks_at_the_precision_that_it_trains_with(
    precision: Literal["fp32", "bf16"],
) -> None:
    task = small_task(small_model(), precision=precision)
    start, batch = task.model.start, next(iter(task.batches(0)))
    seen = task.look(start.params, start.buffers, batch, watch=("body.0",))
    rounded = seen.seen["body.0"][1].dtype == torch.bfloat16
    assert rounded == (precision == "bf16")
    assert seen.logits.dtype == seen.features.dtype == torch.float32
    loss, _ = task.loss(start.params, start.buffers, batch)
    assert torch.equal(F.cross_entropy(seen.logits, batch.targets), loss)

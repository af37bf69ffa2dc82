"""The same methods on a GPU: equal to the CPU up to rounding."""

import pytest
import torch

from peer.evaluate import evaluate
from peer.methods import make_method
from peer.options.recipe import expand
from protocol.params import Params
from protocol.round import Start
from tests.unit.methods.making import contribution, silent, small_model, small_task

CPU = torch.device("cpu")


def kinfolk_on(device: torch.device, precision: str) -> tuple[Params, Params, float]:
    """One round of two peers: the mixed start, the trained point, and its loss."""
    method = make_method(expand("kinfolk", {"train.precision": precision, "train.batch_size": 4}))
    model = method.solver.adapt(small_model("batch")).to(device)
    task = method.task(model, small_task(model, size=24).examples.to(device))
    moved = {name: tensor + 0.01 for name, tensor in model.start.params.items()}
    own = contribution("a", model.start.params, buffers=model.start.buffers)
    other = contribution("b", moved, buffers=model.start.buffers)
    probe = method.probe(task, model.start.buffers, 0)
    mixed, _ = method.mixer.mix({}, own, [other], probe)
    start = Start(mixed.start.params, mixed.start.buffers)
    trained, _ = method.train({}, start, task, 1, silent)
    score = evaluate(model, trained.params, trained.buffers, task.examples)
    assert score is not None
    return mixed.start.params, trained.params, score.loss


@pytest.mark.cuda
@pytest.mark.parametrize(("precision", "apart"), [("fp32", 1e-3), ("bf16", 5e-2)])
def test_a_round_on_a_gpu_is_that_on_the_cpu(precision: str, apart: float) -> None:
    gpu = torch.device("cuda", 0)
    here, there = kinfolk_on(CPU, precision), kinfolk_on(gpu, precision)
    for mine, theirs in zip(here[:2], there[:2], strict=True):
        for name, tensor in mine.items():
            assert theirs[name].device == gpu
            torch.testing.assert_close(theirs[name].cpu(), tensor, rtol=apart, atol=apart)
    assert there[2] == pytest.approx(here[2], rel=apart)


def test_the_round_of_that_test_runs_on_the_cpu() -> None:
    mixed, trained, loss = kinfolk_on(CPU, "fp32")
    assert mixed.keys() == trained.keys()
    assert loss > 0.0

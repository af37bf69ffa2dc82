"""What a trainer publishes in place of what it would share, round after round."""

import pytest
import torch
from torch import Tensor

from peer.publishing import stepped
from protocol.params import NOTHING
from protocol.round import Trained
from protocol.steps import STEPS, Stepper
from protocol.tensors import Sections, spec_body

CODECS = sorted(STEPS)


def result(weight: Tensor, count: int = 1) -> Trained:
    """One matrix, one bias, and what a normalisation layer keeps."""
    buffers = {"mean": torch.full((8,), float(count)), "num_batches": torch.tensor(count)}
    params = {"w": weight, "b": torch.arange(8.0) * count}
    return Trained(params=params, buffers=buffers, num_examples=1, num_steps=1)


def sections(trained: Trained) -> Sections:
    return {"params": trained.params, "buffers": trained.buffers, "extras": trained.extras}


def stepper(codec: str) -> Stepper:
    return Stepper(codec, 0.1, spec_body(sections(result(torch.zeros(8, 20)))))


@pytest.mark.parametrize("codec", CODECS)
def test_what_nobody_holds_yet_is_published_whole(codec: str) -> None:
    shared = result(torch.rand(8, 20))
    assert stepped(stepper(codec), None, shared) == (shared, None)


@pytest.mark.parametrize("codec", CODECS)
def test_all_but_matrices_are_exact_in_every_step(codec: str) -> None:
    before, shared = result(torch.rand(8, 20), 1), result(torch.rand(8, 20), 2)
    leads, step = stepped(stepper(codec), sections(before), shared)
    assert step is not None
    assert not torch.equal(leads.params["w"], shared.params["w"])
    for found in (leads, step):
        assert torch.equal(found.params["b"], shared.params["b"])
        assert all(torch.equal(found.buffers[n], t) for n, t in shared.buffers.items())
        assert found.extras == NOTHING


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_around_a_number_that_is_not_finite_results_are_published_whole(
    codec: str, bad: float
) -> None:
    """The replica recovers: nothing that was not finite stays in it."""
    fine, odd = result(torch.rand(8, 20)), result(torch.rand(8, 20))
    odd.params["w"][3, 4] = bad
    assert stepped(stepper(codec), sections(fine), odd) == (odd, None)
    assert stepped(stepper(codec), sections(odd), fine) == (fine, None)
    assert stepped(stepper(codec), sections(fine), fine)[1] is not None


@pytest.mark.parametrize(("codec", "rounds"), [("delta", 5), ("topk", 10)])
def test_a_result_that_stays_is_reached(codec: str, rounds: int) -> None:
    dice = torch.Generator().manual_seed(1)
    goal = result(torch.rand(8, 20, generator=dice))
    replica = result(torch.rand(8, 20, generator=dice))
    for _ in range(rounds):
        replica, _ = stepped(stepper(codec), sections(replica), goal)
    assert torch.allclose(replica.params["w"], goal.params["w"], rtol=2e-7, atol=0.0)


@pytest.mark.parametrize(("codec", "factor"), [("delta", 1 / 250), ("topk", 10)])
def test_of_a_result_that_moves_on_no_more_is_missing_than_some_rounds_movement(
    codec: str, factor: float
) -> None:
    """Each round moves every number by at most 1: what is missing does not add up."""
    dice = torch.Generator().manual_seed(2)
    at = torch.zeros(8, 20)
    replica = result(at)
    for _ in range(60):
        at = at + 2 * torch.rand(8, 20, generator=dice) - 1
        replica, _ = stepped(stepper(codec), sections(replica), result(at))
        assert (replica.params["w"] - at).abs().max() <= factor

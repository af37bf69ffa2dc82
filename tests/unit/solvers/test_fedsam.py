"""FedSAM: gradients from a step uphill."""

import numpy as np
import pytest
import torch

from peer.options.solvers import DescentOptions, FedSamOptions
from peer.solvers.fedsam import FedSam
from peer.solvers.slopes import length, scaled
from protocol.params import norm
from tests.unit.methods.making import linear_point
from tests.unit.solvers.making import (
    beside_sgd,
    close,
    equal,
    federate,
    matrix,
    mean,
    regression,
    slope_at,
    tasks,
    twin_batches,
)

LR, RHO = 0.3, 0.5
PLAIN = DescentOptions(lr=LR)


def test_three_rounds_are_those_of_the_twin() -> None:
    problems = tasks(regression())
    common = matrix(problems[0].model.start.params)
    for round_no in range(3):
        ends = []
        for peer in (0, 1):
            w = common.copy()
            for batch in twin_batches(peer, round_no):
                g = slope_at(w, batch)
                uphill = w + RHO * g / np.sqrt((g**2).sum())
                w = w - LR * slope_at(uphill, batch)
            ends.append(w)
        common = mean(ends)
    outcome = federate(FedSam(FedSamOptions(descent=PLAIN, rho=RHO)), problems)
    close(outcome.start.params, common)


@pytest.mark.parametrize("norm_layer", ["none", "batch"])
def test_without_a_step_uphill_it_is_sgd_bit_for_bit(norm_layer: str) -> None:
    ours, plain = beside_sgd(FedSam(FedSamOptions(descent=PLAIN, rho=0.0)), PLAIN, norm_layer)
    equal(ours.params, plain.params)
    equal(ours.buffers, plain.buffers)


def test_the_second_pass_moves_no_statistics() -> None:
    solver = FedSam(FedSamOptions(descent=PLAIN))
    ours, plain = beside_sgd(solver, PLAIN, "batch", size=4)  # one step
    equal(ours.buffers, plain.buffers)
    assert ours.buffers["body.1.num_batches_tracked"] == 1
    assert not torch.equal(ours.params["head.weight"], plain.params["head.weight"])


def test_a_gradient_of_zero_leads_nowhere() -> None:
    zeros = {"w": torch.zeros(3)}
    assert scaled(zeros, 0.1 / (length(zeros) + 1e-16))["w"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_length_is_that_of_all_tensors_together(dtype: torch.dtype) -> None:
    point = linear_point(3, dtype)
    assert length(point).item() == pytest.approx(norm(point), rel=1e-6)
    assert scaled(point, length(point))["head.bias"].dtype == dtype

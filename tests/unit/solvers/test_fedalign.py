"""FedAlign: a stage, the same stage made thin, and what each transmits."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from peer.options.solvers import DescentOptions, FedAlignOptions
from peer.solvers.fedalign import FedAlign, strongest
from peer.solvers.thin import ThinStage
from protocol.params import NO_STATE, Params
from tests.unit.methods.making import silent, small_model, small_task
from tests.unit.solvers.making import (
    SIZES,
    beside_sgd,
    equal,
    federate,
    seed_of,
    tasks,
    two_convolutions,
)

LR, MU, CLIP = 0.05, 0.45, 10.0  # the clipping acts in some of the steps
PLAIN = DescentOptions(lr=LR)
ALIGN = FedAlign(FedAlignOptions(descent=PLAIN, mu=MU, width=0.5, clip=CLIP))


# -- the twin: every pass by hand ----------------------------------------------------------------


def twin_strongest(before: Tensor, after: Tensor) -> Tensor:
    """Ten power iterations on T T^T from ones, for one example."""
    pooled = F.adaptive_avg_pool2d(before, (4, 4))
    carried = pooled.flatten(1) @ after.flatten(1).T / 16
    square = carried @ carried.T
    vector = torch.ones(len(square), dtype=torch.float64)
    for _ in range(9):
        vector = square @ vector
        vector = vector / vector.norm()
    size: Tensor = (square @ vector).norm()
    return size.sqrt()


def twin_step(w: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    here = [t.clone().requires_grad_() for t in w]
    middle = torch.relu(F.conv2d(x, here[0], here[1], padding=1))
    wide = torch.relu(F.conv2d(middle, here[2], here[3]))
    loss = F.cross_entropy(F.max_pool2d(wide, 2).flatten(1) @ here[4].T + here[5], y)
    half = middle.detach()[:, :2]
    thin = torch.relu(F.conv2d(half, here[2][:3, :2], here[3][:3]))
    gap = torch.zeros((), dtype=torch.float64)
    for n in range(len(x)):
        s = twin_strongest(half[n], thin[n])
        t = twin_strongest(middle[n].detach(), wide[n].detach())
        gap = gap + (s - t) ** 2 / len(x)
    total = loss + MU * (loss / gap).item() * gap
    grads = torch.autograd.grad(total, here)
    longest = torch.stack([g.square().sum() for g in grads]).sum().sqrt().item()
    fit = min(1.0, CLIP / longest)
    return [(t - LR * fit * g).detach() for t, g in zip(w, grads, strict=True)]


def test_three_rounds_are_those_of_the_twin() -> None:
    model = ALIGN.adapt(two_convolutions(after=nn.ReLU()))
    problems = tasks(model)
    common = list(model.start.params.values())
    for round_no in range(3):
        ends = []
        for peer in (0, 1):
            w = common
            for x, y in problems[peer].batches(seed_of(round_no, peer)):
                w = twin_step(w, x, y)
            ends.append(w)
        share = SIZES[1] / sum(SIZES)
        common = [a * (1 - share) + b * share for a, b in zip(*ends, strict=True)]
    outcome = federate(ALIGN, problems)
    equal(outcome.start.params, dict(zip(model.start.params, common, strict=True)), within=1e-9)


# -- the term --------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_layer", ["none", "batch"])
def test_without_the_term_it_is_sgd_bit_for_bit(norm_layer: str) -> None:
    solver = FedAlign(FedAlignOptions(descent=PLAIN, mu=0.0))
    ours, plain = beside_sgd(solver, PLAIN, norm_layer)
    equal(ours.params, plain.params)
    equal(ours.buffers, plain.buffers)


def test_the_thin_pass_moves_no_statistics() -> None:
    ours, plain = beside_sgd(ALIGN, PLAIN, "batch", size=4)  # one step
    equal(ours.buffers, plain.buffers)
    assert not torch.equal(ours.params["body.0.weight"], plain.params["body.0.weight"])


def test_the_thin_stage_comes_to_transmit_as_much_as_the_whole() -> None:
    model = two_convolutions(after=nn.ReLU())
    task = tasks(model)[0]
    stage = ThinStage.of(model, 0.5)
    batch = next(iter(task.batches(0)))

    def gap(params: Params) -> float:
        seen = task.look(params, {}, batch, watch=(stage.first, stage.last)).seen
        before, after = seen[stage.first][0], seen[stage.last][1]
        half = stage.slice(before)
        s, t = strongest(half, stage.run(params, {}, half)), strongest(before, after)
        return F.mse_loss(s / t, torch.ones_like(t)).item()

    ends = []
    for mu in (0.0, 2.0):
        options = FedAlignOptions(descent=DescentOptions(lr=0.02, epochs=5), mu=mu, width=0.5)
        trained, _ = FedAlign(options).train(NO_STATE, model.start, task, 0, silent)
        ends.append(gap(trained.params))
    assert ends[1] < 0.8 * ends[0]


def test_the_strongest_singular_value_is_found_for_each_example() -> None:
    chance = torch.Generator().manual_seed(2)
    before = torch.rand(3, 5, 4, 4, generator=chance, dtype=torch.float64)  # as after a ReLU
    after = torch.rand(3, 7, 2, 2, generator=chance, dtype=torch.float64)
    for n, found in enumerate(strongest(before, after)):
        carried = F.avg_pool2d(before[n], 2).flatten(1) @ after[n].flatten(1).T / 4
        assert found.item() == pytest.approx(torch.linalg.svdvals(carried)[0].item(), rel=1e-9)


def test_a_stage_that_transmits_nothing_has_a_gradient_of_zero() -> None:
    after = torch.zeros(2, 3, 2, 2, requires_grad=True)
    found = strongest(torch.zeros(2, 4, 2, 2), after)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert found.tolist() == pytest.approx([1e-6, 1e-6])
    assert after.grad is not None
    assert not after.grad.any()


def test_autocast_leaves_the_thin_stage_in_full_precision() -> None:
    task = small_task(ALIGN.adapt(small_model("batch")), precision="bf16")
    start = task.model.start
    half, _ = ALIGN.train(NO_STATE, start, task, 0, silent)
    full, _ = ALIGN.train(NO_STATE, start, small_task(task.model), 0, silent)
    assert half.params["head.weight"].dtype == torch.float32
    torch.testing.assert_close(
        half.params["head.weight"], full.params["head.weight"], rtol=0.1, atol=0.03
    )

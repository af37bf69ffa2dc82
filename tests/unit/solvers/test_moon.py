"""MOON: a contrast between three models, and the projection that it is drawn in."""

from collections import OrderedDict
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from peer.models.describe import describe
from peer.models.registry import build_model
from peer.models.split import Mode, SplitModel
from peer.options.solvers import DescentOptions, MoonOptions, SgdOptions
from peer.solvers.moon import Moon
from peer.solvers.sgd import Sgd
from protocol.params import NO_STATE, Params
from protocol.round import Start
from tests.unit.methods.making import CPU, silent, small_model, small_task
from tests.unit.solvers.making import (
    SIZES,
    equal,
    federate,
    float64,
    regression,
    seed_of,
    tasks,
)

LR, MU, TEMPERATURE, WIDTH = 0.3, 2.0, 0.5, 5
PLAIN = DescentOptions(lr=LR)
MOON = Moon(MoonOptions(descent=PLAIN, mu=MU, temperature=TEMPERATURE, width=WIDTH))


# -- the twin: the paper's loss on lists of matrices -------------------------------------------


def projection(w: Sequence[Tensor], x: Tensor) -> Tensor:
    return torch.relu(x @ w[0].T + w[1]) @ w[2].T + w[3]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """0 where one of them is zero, as the projection of an example whose ReLUs are all off."""
    size: Tensor = a.norm().clamp(min=1e-8) * b.norm().clamp(min=1e-8)
    return a @ b / size


def twin_step(
    w: Sequence[Tensor], near: Sequence[Tensor], far: Sequence[Tensor], x: Tensor, y: Tensor
) -> list[Tensor]:
    here = [t.clone().requires_grad_() for t in w]
    z, z_near, z_far = (projection(point, x) for point in (here, near, far))
    total = torch.zeros((), dtype=torch.float64)
    for n in range(len(x)):
        scores = z[n] @ here[4].T + here[5]
        total = total + torch.logsumexp(scores, 0) - scores[y[n]]
        like, unlike = (cosine(z[n], other[n]) / TEMPERATURE for other in (z_near, z_far))
        total = total - MU * torch.log(torch.exp(like) / (torch.exp(like) + torch.exp(unlike)))
    grads = torch.autograd.grad(total / len(x), here)
    return [(t - LR * g).detach() for t, g in zip(w, grads, strict=True)]


def test_three_rounds_are_those_of_the_twin() -> None:
    problems = tasks(MOON.adapt(regression()))
    names = list(problems[0].model.start.params)
    common = list(problems[0].model.start.params.values())
    last = [common, common]
    for round_no in range(3):
        ends = []
        for peer in (0, 1):
            w = common
            for x, y in problems[peer].batches(seed_of(round_no, peer)):
                w = twin_step(w, common, last[peer], x, y)
            last[peer] = w
            ends.append(w)
        share = SIZES[1] / sum(SIZES)
        common = [a * (1 - share) + b * share for a, b in zip(*ends, strict=True)]
    outcome = federate(MOON, problems)
    equal(outcome.start.params, dict(zip(names, common, strict=True)), within=1e-9)
    equal(outcome.states[1]["last"], dict(zip(names, last[1], strict=True)), within=1e-9)


# -- the contrast -------------------------------------------------------------------------------


def test_without_the_contrast_it_is_sgd_bit_for_bit() -> None:
    solver = Moon(MoonOptions(descent=PLAIN, mu=0.0, width=WIDTH))
    problems = tasks(solver.adapt(regression()))
    equal(
        federate(solver, problems).start.params,
        federate(Sgd(SgdOptions(descent=PLAIN)), problems).start.params,
    )


def test_in_the_first_round_the_contrast_is_even_and_pulls_nowhere() -> None:
    task = tasks(MOON.adapt(regression()))[0]
    start = task.model.start
    trained, _ = MOON.train(MOON.init(start), start, task, 0, silent)
    plain, _ = Sgd(SgdOptions(descent=PLAIN)).train(NO_STATE, start, task, 0, silent)
    equal(trained.params, plain.params, within=1e-12)


def test_projections_prefer_the_start_to_the_last_model_more_than_without_the_contrast() -> None:
    task = tasks(MOON.adapt(regression()))[0]
    start = task.model.start
    chance = torch.Generator().manual_seed(4)
    last = Start(
        {n: t + 0.3 * torch.randn(t.shape, generator=chance) for n, t in start.params.items()}
    )
    batch = next(iter(task.batches(0)))

    def preference(params: Params) -> float:
        z, near, far = (
            task.look(point, {}, batch, Mode.EVALUATE).features
            for point in (params, start.params, last.params)
        )
        return (F.cosine_similarity(z, near) - F.cosine_similarity(z, far)).mean().item()

    found = []
    for mu in (0.0, 5.0):
        options = MoonOptions(descent=DescentOptions(lr=0.02, epochs=5), mu=mu, width=WIDTH)
        solver = Moon(options)
        trained, _ = solver.train(solver.init(last), start, task, 0, silent)
        found.append(preference(trained.params))
    assert found[1] > 1.2 * found[0]


def test_only_the_pass_that_is_trained_moves_statistics() -> None:
    solver = Moon(MoonOptions(descent=PLAIN, width=WIDTH))
    task = small_task(solver.adapt(small_model("batch")), size=4)  # one step
    start = task.model.start
    trained, state = solver.train(solver.init(start), start, task, 0, silent)
    plain, _ = Sgd(SgdOptions(descent=PLAIN)).train(NO_STATE, start, task, 0, silent)
    equal(trained.buffers, plain.buffers)
    equal(state["last_buffers"], trained.buffers)


# -- the projection -----------------------------------------------------------------------------


def test_the_projection_lies_between_features_and_a_new_classifier() -> None:
    model = small_model("batch", dtype=torch.float64)
    made = MOON.adapt(model)
    assert {n: tuple(made.start.params[n].shape) for n in made.rows} == {
        "body.0.weight": (4, 1, 3, 3),
        "head.first.weight": (16, 16),
        "head.second.weight": (WIDTH, 16),
        "head.head.weight": (3, WIDTH),
    }
    assert made.head.names == ("head.head.weight", "head.head.bias")
    assert list(made.start.params) == [name for name, _ in made.module.named_parameters()]
    inputs = torch.ones(2, 1, 6, 6, dtype=torch.float64)
    features = model.features(
        model.start.params, model.start.buffers, inputs, Mode.EVALUATE
    )  # what the old classifier saw
    w = made.start.params
    seen = made.run(w, made.start.buffers, inputs, Mode.EVALUATE)
    hidden = torch.relu(features @ w["head.first.weight"].T + w["head.first.bias"])
    z = hidden @ w["head.second.weight"].T + w["head.second.bias"]
    torch.testing.assert_close(seen.features, z)
    torch.testing.assert_close(seen.logits, z @ w["head.head.weight"].T + w["head.head.bias"])


def test_the_rest_of_the_model_is_as_it_was() -> None:
    model = small_model("batch")
    before = [name for name, _ in model.module.named_parameters()]
    made = MOON.adapt(model)
    for name, tensor in model.start.params.items():
        if name not in model.head.names:
            assert made.start.params[name] is tensor
    assert [name for name, _ in model.module.named_parameters()] == before
    assert made.module is not model.module


def test_a_runs_seed_draws_its_projection_and_equal_seeds_the_same() -> None:
    def drawn(seed: int) -> Tensor:
        model = build_model("mlp", (4,), 3, "group", seed)
        return Moon().adapt(model).start.params["head.first.weight"]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


class Aliased(nn.Module):
    """A classifier with two names, of which the model uses the second."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.fc = nn.Linear(6, 3, bias=bias)
        self.head = self.fc

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.relu(self.body(x)))
        return scores


@pytest.mark.parametrize("bias", [True, False])
def test_a_classifier_with_two_names_is_replaced_under_both(bias: bool) -> None:
    made = MOON.adapt(describe("own", Aliased(bias=bias), (4,), 3))
    assert made.head.names == tuple(
        f"fc.head.{n}" for n in ("weight", "bias") if n == "weight" or bias
    )
    seen = made.run(made.start.params, {}, torch.ones(2, 4), Mode.EVALUATE)
    assert seen.features.shape == (2, WIDTH)


def test_a_model_that_is_nothing_but_a_classifier_gets_a_projection_too() -> None:
    made = MOON.adapt(float64(nn.Linear(4, 3), (4,), 3))
    assert made.head.names == ("head.weight", "head.bias")
    trained, _ = MOON.train(MOON.init(made.start), made.start, tasks(made)[0], 0, silent)
    assert trained.params["first.weight"].shape == (4, 4)


def test_frozen_parameters_stay_frozen() -> None:
    body = nn.Linear(4, 6)
    body.weight.requires_grad = False
    net = nn.Sequential(OrderedDict(body=body, head=nn.Linear(6, 3)))
    model: SplitModel = describe("own", net, (4,), 3).to(CPU)
    made = MOON.adapt(model)
    assert "body.weight" in made.start.buffers
    assert "body.weight" not in made.start.params

"""FedAlign: a stage, the same stage made thin, and what each transmits."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from peer.models.registry import build_model
from peer.models.split import Mode, SplitModel
from peer.options.solvers import DescentOptions, FedAlignOptions
from peer.seeding import forked
from peer.solvers.fedalign import FedAlign, strongest
from peer.solvers.sgd import Sgd
from peer.solvers.thin import ThinStage
from protocol.errors import ModelError
from protocol.params import NO_STATE, Params
from tests.unit.methods.making import silent, small_model, small_task
from tests.unit.solvers.making import SIZES, equal, federate, float64, seed_of, tasks

LR, MU, CLIP = 0.05, 0.45, 10.0  # the clipping acts in some of the steps
PLAIN = DescentOptions(lr=LR)
ALIGN = FedAlign(FedAlignOptions(descent=PLAIN, mu=MU, width=0.5, clip=CLIP))


def two_convolutions(**layers: nn.Module) -> SplitModel:
    """6x6 images of one channel, by way of 4 channels to 6; further layers of the last stage."""
    with forked(0):
        body = OrderedDict(
            one=nn.Conv2d(1, 4, 3, padding=1),
            on=nn.ReLU(),
            two=nn.Conv2d(4, 6, 3),
            **layers,
            pool=nn.MaxPool2d(2),
            flat=nn.Flatten(),
        )
        net = nn.Sequential(OrderedDict(body=nn.Sequential(body), head=nn.Linear(24, 3)))
    return float64(net, (1, 6, 6), 3)


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
    task = small_task(solver.adapt(small_model(norm_layer)), size=10)
    start = task.model.start
    ours, _ = solver.train(NO_STATE, start, task, 3, silent)
    plain, _ = Sgd(PLAIN).train(NO_STATE, start, task, 3, silent)
    equal(ours.params, plain.params)
    equal(ours.buffers, plain.buffers)


def test_the_thin_pass_moves_no_statistics() -> None:
    task = small_task(small_model("batch"), size=4)  # one step
    start = task.model.start
    ours, _ = ALIGN.train(NO_STATE, start, task, 3, silent)
    plain, _ = Sgd(PLAIN).train(NO_STATE, start, task, 3, silent)
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


# -- the stage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "norm_layer", "first", "last"),
    [
        ("lenet5", "group", "body.3", "body.4"),
        ("craft-cnn", "group", "body.3", "body.4"),
        ("cnn", "group", "body.8", "body.10"),
        ("cnn", "batch", "body.8", "body.10"),
        ("resnet20", "group", "body.9", "body.11"),
        ("resnet20", "batch", "body.9", "body.11"),
        ("resnet18", "group", "body.9", "body.10"),
    ],
)
def test_the_last_stage_of_every_built_in_model(
    name: str, norm_layer: str, first: str, last: str
) -> None:
    model = build_model(name, (1, 16, 16), 3, norm_layer, 0)
    assert FedAlign().adapt(model) is model
    stage = ThinStage.of(model, 0.25)
    assert (stage.first, stage.last) == (first, last)
    start, inputs = model.start, torch.rand(2, 1, 16, 16)
    seen = model.run(start.params, start.buffers, inputs, Mode.TRAIN, (first, last)).seen
    before, after = seen[first][0], seen[last][1]
    thin = stage.run(start.params, start.buffers, stage.slice(before))
    assert thin.shape == (2, after.shape[1] // 4, *after.shape[2:])


def test_a_thin_convolution_is_the_whole_one_with_all_other_channels_silent() -> None:
    model = two_convolutions(norm=nn.GroupNorm(2, 6), after=nn.ReLU())
    stage = ThinStage.of(model, 0.5)
    start = model.start
    before = torch.rand(2, 4, 6, 6, dtype=torch.float64)
    silent_rest = before.clone()
    silent_rest[:, 2:] = 0.0
    w = start.params
    convolved = F.conv2d(silent_rest, w["body.two.weight"], w["body.two.bias"])[:, :3]
    expected = torch.relu(F.group_norm(convolved, 1, w["body.norm.weight"][:3]))
    found = stage.run(w, start.buffers, stage.slice(before))
    torch.testing.assert_close(found, expected)


def test_a_group_that_does_not_divide_the_thin_channels_becomes_one_group() -> None:
    stage = ThinStage.of(two_convolutions(norm=nn.GroupNorm(3, 6)), 0.5)
    norm_layer = stage.module[1]  # type: ignore[index]
    assert (norm_layer.num_channels, norm_layer.num_groups) == (3, 1)  # not groups of 2


def test_a_width_that_halves_a_channel_rounds_up_and_keeps_shortcuts_whole() -> None:
    model = build_model("resnet20", (1, 8, 8), 3, "batch", 0)
    FedAlign(FedAlignOptions(width=0.1)).adapt(model)  # 64 to 7 channels, 32 to 4


@pytest.mark.parametrize("size", [1, 2])
def test_a_batch_of_one_example_is_normalised_by_running_statistics(size: int) -> None:
    model = two_convolutions(norm=nn.BatchNorm2d(6))
    stage, start = ThinStage.of(model, 0.5), model.start
    before = torch.rand(size, 2, 6, 6, dtype=torch.float64)
    found = stage.run(start.params, start.buffers, before)
    w = start.params
    convolved = F.conv2d(before, w["body.two.weight"][:3, :2], w["body.two.bias"][:3])
    running = convolved / (1.0 + 1e-5) ** 0.5  # mean 0 and variance 1 so far
    assert torch.allclose(found, running) == (size == 1)
    assert start.buffers["body.norm.running_mean"].tolist() == [0.0] * 6


def test_autocast_leaves_the_thin_stage_in_full_precision() -> None:
    task = small_task(ALIGN.adapt(small_model("batch")), precision="bf16")
    start = task.model.start
    half, _ = ALIGN.train(NO_STATE, start, task, 0, silent)
    full, _ = ALIGN.train(NO_STATE, start, small_task(task.model), 0, silent)
    assert half.params["head.weight"].dtype == torch.float32
    torch.testing.assert_close(
        half.params["head.weight"], full.params["head.weight"], rtol=0.1, atol=0.03
    )


# -- models of one's own ---------------------------------------------------------------------------


class Wrapped(nn.Module):
    """A body that holds a convolution and calls it its own way."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


class Beside(nn.Module):
    """A block that adds two channels of its input to those of its convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.conv(x), x[:, :2]], dim=1)


class Counted(nn.Module):
    """A block that knows how many channels there are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x.reshape(-1, 4, 6, 6))
        return out


class Attentive(nn.Module):
    """A block with a layer whose axes are not channels of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(4, 6, 3, padding=1), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(x)
        gated: Tensor = out * self.gate(out.mean(dim=(2, 3)))[:, :, None, None]
        return gated


def own(*layers: nn.Module, wrap: bool = False) -> SplitModel:
    with forked(0):
        body: nn.Module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *layers)
        body = Wrapped(body) if wrap else body
        tail = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))
        net = nn.Sequential(body, *tail)
        net(torch.zeros(2, 1, 6, 6))
    return float64(net, (1, 6, 6), 3)


def test_blocks_of_ones_own_form_a_stage_with_those_of_their_width() -> None:
    def block(out: int) -> nn.Module:
        return Wrapped(nn.Conv2d(4, out, 1))

    model = own(block(4), Wrapped(nn.Conv2d(4, 6, 3)), Wrapped(nn.Conv2d(6, 6, 1)), wrap=True)
    ALIGN.adapt(model)
    stage = ThinStage.of(model, 0.5)
    assert (stage.first, stage.last) == ("0.inner.2", "0.inner.3")


def test_a_convolution_outside_of_a_sequence_is_a_stage_alone() -> None:
    stage = ThinStage.of(own(nn.Sequential(nn.ReLU(), nn.Conv2d(4, 6, 3))), 0.5)
    assert (stage.first, stage.last) == ("0.1.1", "0.1.1")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.head(torch.relu(self.norm(self.conv(x))).mean(dim=(2, 3)))
            return scores

    model = float64(Net(), (1, 6, 6), 3)
    ALIGN.adapt(model)
    stage = ThinStage.of(model, 0.5)
    assert (stage.first, stage.last) == ("conv", "conv")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            build_model("mlp", (4,), 3, "group", 0),
            "mlp has no 2-D convolution, and so no last stage",
        ),
        (own(nn.Conv2d(4, 8, 3, groups=2)), "its last stage has a Conv2d that cannot be thinned"),
        (own(Attentive()), "its last stage has a Linear that cannot be thinned"),
        (own(Counted()), "0.1 to 0.1, does not run at width 0.5: RuntimeError: "),
        (own(Beside()), r"0.1 to 0.1, gives \(2, 5, 6, 6\) at width 0.5, it should give \(2, 4, "),
    ],
    ids=["no convolution", "groups", "linear", "counted", "beside"],
)
def test_a_model_without_a_stage_that_can_be_thinned_is_refused(
    model: SplitModel, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        ALIGN.adapt(model)

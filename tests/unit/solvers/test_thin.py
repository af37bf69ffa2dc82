"""The last stage of a model, found and made thin."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from peer.models.registry import build_model
from peer.models.split import Mode, SplitModel
from peer.options.solvers import FedAlignOptions
from peer.seeding import forked
from peer.solvers.fedalign import FedAlign
from peer.solvers.thin import ThinStage
from protocol.errors import ModelError
from tests.unit.solvers.making import float64, two_convolutions

ALIGN = FedAlign(FedAlignOptions(width=0.5))


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

"""The built-in models: sizes, splits, seeds and refusals."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn

from peer.models.registry import BODIES, build_model
from peer.models.split import Mode
from peer.options.models import MODELS
from protocol.errors import ModelError

GREY, COLOUR = (1, 28, 28), (3, 32, 32)

# by hand from the layers; ResNets as published (0.27 M, 0.85 M, 1.7 M, 11.2 M)
SIZES = {
    "mlp": (784 + 1) * 200 + 201 * 200 + 201 * 10,
    "lenet5": 26 * 6 + 151 * 16 + 401 * 120 + 121 * 84 + 85 * 10,
    "cnn": 9 * (16 + 16 * 32 + 32 * 64) + 2 * (16 + 32 + 64) + (576 + 1) * 128 + 129 * 10,
    "craft-cnn": 26 * 64 + 1601 * 64 + 1025 * 384 + 385 * 192 + 193 * 10,
    "resnet20": 269_434,
    "resnet56": 852_730,
    "resnet110": 1_727_674,
    "resnet18": 11_172_810,
}


def size_of(name: str) -> int:
    return sum(t.numel() for t in build_model(name, GREY, 10, "group", 0).start.params.values())


def test_the_registry_and_the_options_name_the_same_models() -> None:
    assert sorted(BODIES) == sorted(MODELS) == sorted(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_a_model_has_its_size(name: str) -> None:
    assert size_of(name) == SIZES[name]


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        pair
        for pair in product(MODELS, ("group", "batch"))
        if pair[1] == "group" or MODELS[pair[0]].normalised
    ],
)
def test_the_classifier_on_the_features_gives_the_scores(name: str, norm: str) -> None:
    model = build_model(name, COLOUR, 7, norm, 0)
    params, buffers = model.start.params, model.start.buffers
    inputs = torch.rand(3, *COLOUR, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        features = model.features(params, buffers, inputs, Mode.PROBE)
        scores, _ = model.logits(params, buffers, inputs, Mode.PROBE)
        expected = F.linear(features, params["head.weight"], params["head.bias"])
    torch.testing.assert_close(scores, expected)
    assert scores.shape == (3, 7)
    assert bool(buffers) == (norm == "batch")


def test_equal_seeds_give_equal_models_and_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (build_model("cnn", GREY, 10, "batch", seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(t, same.start.params[n]) for n, t in one.start.params.items())
    assert not torch.equal(one.start.params["head.weight"], other.start.params["head.weight"])


def test_lenet5_sees_28_and_32_pixels_alike() -> None:
    small, large = (build_model("lenet5", shape, 10, "group", 0) for shape in (GREY, (1, 32, 32)))
    assert {n: t.shape for n, t in small.start.params.items()} == {
        n: t.shape for n, t in large.start.params.items()
    }


def test_shortcuts_of_resnet20_have_no_parameters_and_those_of_resnet18_do() -> None:
    assert not any(
        "shortcut" in n for n in build_model("resnet20", GREY, 10, "group", 0).start.params
    )
    projections = [n for n in build_model("resnet18", GREY, 10, "group", 0).rows if "shortcut" in n]
    assert len(projections) == 3


def test_rows_are_the_convolutions_and_linear_layers() -> None:
    model = build_model("resnet20", GREY, 10, "group", 0)
    assert len(model.rows) == 20  # 19 convolutions and the classifier
    assert set(model.rows.values()) == {0}


def test_the_module_holds_no_numbers() -> None:
    module = build_model("cnn", GREY, 10, "batch", 0).module
    assert {t.device.type for t in [*module.parameters(), *module.buffers()]} == {"meta"}
    assert isinstance(module, nn.Module)


def test_dropout_acts_in_training_only() -> None:
    model = build_model("craft-cnn", GREY, 10, "group", 0)
    inputs = torch.rand(2, *GREY, generator=torch.Generator().manual_seed(1))
    once, twice = (model.logits(model.start.params, {}, inputs, Mode.TRAIN)[0] for _ in range(2))
    assert not torch.equal(once, twice)
    once, twice = (model.logits(model.start.params, {}, inputs, Mode.EVALUATE)[0] for _ in range(2))
    assert torch.equal(once, twice)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "norm", "told"),
    [
        ("lenet6", GREY, 10, "group", "there is no model 'lenet6' - did you mean lenet5?"),
        ("transformer", GREY, 10, "group", "package.module:factory for your own"),
        ("mlp", GREY, 10, "batch", "mlp has no normalisation layers, norm = batch has nothing"),
        ("cnn", GREY, 10, "layer", "norm = layer cannot be used: it must be group or batch"),
        ("cnn", GREY, 1, "group", "at least 2 classes, got 1"),
        (
            "lenet5",
            (1, 8, 8),
            10,
            "group",
            r"at least 12x12, got \(1, 8, 8\) - take mlp, or resize",
        ),
        ("lenet5", (64,), 10, "group", "lenet5 needs images"),
        ("resnet20", (64,), 10, "group", "a ResNet needs images"),
    ],
)
def test_what_cannot_be_built_is_refused(
    name: str, shape: tuple[int, ...], classes: int, norm: str, told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        build_model(name, shape, classes, norm, 0)

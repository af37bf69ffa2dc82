"""Groups of layers from names and shapes: those of CRAFT's authors for the networks they used."""

import pytest
import torch

from peer.aggregators.groups import MODEL, layer_groups
from peer.models.registry import build_model
from protocol.params import Params


def named(**shapes: tuple[int, ...]) -> Params:
    """Names with two underscores for a dot."""
    return {name.replace("__", "."): torch.zeros(shape) for name, shape in shapes.items()}


def modules(**shapes: tuple[int, ...]) -> dict[str, tuple[str, ...]]:
    return dict(layer_groups(named(**shapes), "module"))


@pytest.mark.parametrize(
    ("model", "shape", "norm", "count"),
    [
        ("resnet20", (3, 32, 32), "group", 20),
        ("resnet56", (3, 32, 32), "group", 56),
        ("resnet110", (3, 32, 32), "group", 110),
        ("resnet18", (3, 32, 32), "batch", 21),  # 17 convolutions, 3 projections, the classifier
        ("cnn", (1, 28, 28), "group", 5),
        ("lenet5", (1, 28, 28), "group", 5),
        ("mlp", (1, 28, 28), "group", 3),
    ],
)
def test_each_convolution_and_linear_layer_is_a_group(
    model: str, shape: tuple[int, ...], norm: str, count: int
) -> None:
    params = build_model(model, shape, 10, norm, 0).start.params
    groups = layer_groups(params, "module")
    assert len(groups) == count
    assert sorted(name for names in groups.values() for name in names) == sorted(params)


def test_a_normalisation_joins_the_convolution_before_it() -> None:
    found = modules(
        body__0__conv1__weight=(4, 2, 3, 3),
        body__0__norm1__weight=(4,),
        body__0__norm1__bias=(4,),
        body__0__conv2__weight=(4, 4, 3, 3),
        body__0__conv2__bias=(4,),
        body__0__norm2__weight=(4,),
        body__0__norm2__bias=(4,),
    )
    assert found == {
        "body.0.conv1": ("body.0.conv1.weight", "body.0.norm1.weight", "body.0.norm1.bias"),
        "body.0.conv2": (
            "body.0.conv2.weight",
            "body.0.conv2.bias",
            "body.0.norm2.weight",
            "body.0.norm2.bias",
        ),
    }


def test_a_normalisation_behind_a_transposed_convolution_joins_it() -> None:
    found = modules(up__weight=(8, 4, 2, 2), norm__weight=(4,), norm__bias=(4,))
    assert found == {"up": ("up.weight", "norm.weight", "norm.bias")}


@pytest.mark.parametrize(
    ("before", "vectors"),
    [
        ({"fc__weight": (4, 3)}, {"norm__weight": (4,)}),  # no convolution
        ({"block__conv__weight": (4, 2, 3, 3)}, {"norm__weight": (4,)}),  # of another block
        ({"conv__weight": (6, 2, 3, 3)}, {"norm__weight": (4,)}),  # of other channels
        ({"conv__weight": (4, 2, 3, 3)}, {"norm__weight": (4,), "norm__bias": (2,)}),
        ({"conv__weight": (4, 2, 3, 3)}, {"fc__weight": (4, 4)}),
    ],
)
def test_what_does_not_normalise_the_convolution_before_it_stays_apart(
    before: dict[str, tuple[int, ...]], vectors: dict[str, tuple[int, ...]]
) -> None:
    assert len(modules(**before, **vectors)) == 2


def test_a_tensor_of_no_layer_is_a_group_by_itself() -> None:
    found = modules(conv__weight=(4, 2, 3, 3), scale=(4,), attention__in_proj_weight=(6, 2))
    assert list(found) == ["conv", "scale", "attention.in_proj_weight"]


def test_a_model_that_is_one_layer_is_one_group() -> None:
    assert modules(weight=(3, 2), bias=(3,)) == {MODEL: ("weight", "bias")}


def test_tensors_of_a_layer_that_lie_apart_are_one_group() -> None:
    found = modules(a__weight=(2, 2), b__weight=(2, 2), a__bias=(2,))
    assert found == {"a": ("a.weight", "a.bias"), "b": ("b.weight",)}


def test_by_tensor_and_all_together() -> None:
    params = named(a__weight=(2, 2), a__bias=(2,))
    assert layer_groups(params, "tensor") == {"a.weight": ("a.weight",), "a.bias": ("a.bias",)}
    assert layer_groups(params, "global") == {MODEL: ("a.weight", "a.bias")}

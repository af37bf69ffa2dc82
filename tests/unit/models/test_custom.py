"""A person's own model: how its classifier is found, and every refusal."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn

from peer.models.describe import describe
from peer.models.registry import build_model
from peer.models.split import Mode, SplitModel
from peer.solvers.sgd import Sgd
from protocol.errors import LayoutError, ModelError
from protocol.params import NO_STATE
from tests.unit.methods.making import silent, small_model, small_task

SHAPE = (1, 6, 6)


class Net(nn.Module):
    """A body and a classifier under names of one's own; `after` is what follows the classifier."""

    def __init__(self, classes: int = 3, after: nn.Module | None = None) -> None:
        super().__init__()
        self.fc = nn.Linear(5, classes)  # declared first, used last
        self.body = nn.Linear(36, 5)
        self.after = after or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.fc(torch.relu(self.body(x.flatten(1)))))  # type: ignore[no-any-return]


class Declared(Net):
    def __init__(self, head: object) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)
        self.head = head


def described(module: nn.Module) -> SplitModel:
    return describe("mine", module, SHAPE, 3)


def refused(module: nn.Module) -> str:
    with pytest.raises(ModelError) as caught:
        described(module)
    return str(caught.value)


def test_the_linear_layer_that_makes_the_output_is_the_classifier() -> None:
    assert described(Net()).head.names == ("fc.weight", "fc.bias")


def test_a_classifier_may_have_no_bias() -> None:
    net = Net()
    net.fc = nn.Linear(5, 3, bias=False)
    model = described(net)
    assert (model.head.weight, model.head.bias) == ("fc.weight", None)


def test_a_model_that_is_one_layer_is_its_own_classifier() -> None:
    model = describe("mine", nn.Linear(4, 3), (4,), 3)
    assert model.head.names == ("weight", "bias")
    inputs = torch.ones(2, 4)
    assert torch.equal(model.features(model.start.params, {}, inputs, Mode.EVALUATE), inputs)


def test_a_linear_layer_of_the_right_size_inside_is_not_taken_for_it() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), nn.ReLU(), nn.Linear(3, 3))
    assert described(net).head.weight == "3.weight"


def test_a_declared_head_is_taken_by_name_or_by_layer() -> None:
    assert described(Declared("fc")).head.weight == "fc.weight"
    net = Declared(None)
    net.head = net.fc
    assert described(net).head.weight == "fc.weight"


def test_a_declared_head_that_does_not_make_the_output_is_refused() -> None:
    assert "its declared head 'body' does not make the output" in refused(Declared("body"))
    assert "head says 'neck', which is no nn.Linear of it - there are: fc, body" in refused(
        Declared("neck")
    )


def test_an_output_behind_the_classifier_is_refused_with_what_was_found() -> None:
    told = refused(Net(after=nn.Softmax(dim=1)))
    assert "no classifier found: it must be an nn.Linear with 3 outputs" in told
    assert "such layers by size: fc" in told
    assert "end the model with an nn.Linear" in told


def test_a_model_without_a_linear_layer_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 6), nn.Flatten())
    assert "such layers by size: none" in refused(net)


def test_an_output_of_the_wrong_shape_is_refused() -> None:
    assert "gave an output of (2, 4), it must be (2, 3)" in refused(Net(classes=4))


def test_an_output_that_is_no_tensor_is_refused() -> None:
    class Pair(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (super().forward(x), x)  # type: ignore[return-value]  # what is tested

    assert "its output is a tuple, it must be a tensor" in refused(Pair())


def test_a_model_that_fails_on_the_inputs_is_refused_with_its_own_words() -> None:
    told = refused(nn.Linear(7, 3))
    assert "mine: it failed on two inputs of (1, 6, 6): RuntimeError" in told


def test_lazy_parameters_are_refused() -> None:
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    assert "1.weight has no shape before the first batch" in refused(net)


def test_tied_parameters_are_refused_by_both_names() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, 3))
    net[2].weight = net[1].weight
    assert "1.weight and 2.weight are one tensor (tied)" in refused(net)


def test_complex_parameters_are_refused() -> None:
    net = Net()
    net.phase = nn.Parameter(torch.zeros(1, dtype=torch.complex64))
    assert "phase is complex" in refused(net)


def test_a_model_with_nothing_to_train_and_a_frozen_classifier_are_refused() -> None:
    assert "no parameter is trainable" in refused(Net().requires_grad_(requires_grad=False))
    net = Net()
    net.fc.requires_grad_(requires_grad=False)
    assert "the classifier's fc.weight is not a trainable parameter" in refused(net)


def test_frozen_layers_are_shared_as_they_are_and_stay_what_they_are() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3))
    net[1].requires_grad_(requires_grad=False)
    model = described(net)
    assert list(model.start.params) == ["3.weight", "3.bias"]
    assert list(model.start.buffers) == ["1.weight", "1.bias"]
    task = small_task(model)
    trained, _ = Sgd().train(NO_STATE, model.start, task, 0, silent)
    assert torch.equal(trained.buffers["1.weight"], model.start.buffers["1.weight"])
    assert not torch.equal(trained.params["3.weight"], model.start.params["3.weight"])


def test_a_parameter_that_the_loss_does_not_depend_on_stays() -> None:
    net = Net()
    net.unused = nn.Parameter(torch.ones(2))
    model = described(net)
    trained, _ = Sgd().train(NO_STATE, model.start, small_task(model), 0, silent)
    assert trained.params["unused"].tolist() == [1.0, 1.0]


def test_a_split_model_refuses_the_numbers_of_another() -> None:
    model = described(Net())
    with pytest.raises(LayoutError, match="not the parameters and buffers of mine"):
        model.logits(small_model().start.params, {}, torch.zeros(2, *SHAPE), Mode.EVALUATE)


# -- from a file of the person's own -----------------------------------------------------------


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current directory, and nothing left of it."""
    (tmp_path / "kin_model.py").write_text(
        dedent(
            """
            from torch import nn

            def net(input_shape, num_classes):
                body = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.ReLU())
                return nn.Sequential(*body, nn.Linear(4, num_classes))

            class Own(nn.Module):
                def __init__(self, input_shape, num_classes):
                    super().__init__()
                    self.fc = nn.Linear(36, num_classes)

                def forward(self, x):
                    return self.fc(x.flatten(1))

            def no_arguments():
                return None

            def a_list(input_shape, num_classes):
                return []

            def broken(input_shape, num_classes):
                raise KeyError("weights.bin")

            size = 3
            """
        )
    )
    (tmp_path / "kin_broken.py").write_text("import no_such_thing_at_all\n")
    monkeypatch.chdir(tmp_path)
    yield "kin_model"
    for name in ("kin_model", "kin_broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("factory", ["net", "Own"])
def test_a_factory_in_the_current_directory_is_found(own_module: str, factory: str) -> None:
    path = list(sys.path)
    model = build_model(f"{own_module}:{factory}", SHAPE, 3, "group", 0)
    again = build_model(f"{own_module}:{factory}", SHAPE, 3, "group", 0)
    params, inputs = model.start.params, torch.zeros(2, *SHAPE)
    scores, _ = model.logits(params, {}, inputs, Mode.EVALUATE)
    features = model.features(params, {}, inputs, Mode.EVALUATE)
    assert torch.equal(scores, F.linear(features, *(params[n] for n in model.head.names)))
    assert all(torch.equal(t, again.start.params[n]) for n, t in params.items())
    assert sys.path == path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kin_model:nett", "kin_model has no function or class nett - it has: net, Own, no_arg"),
        ("kin_model:size", "has no function or class size"),
        ("kin_model:", "is not of the form package.module:factory"),
        ("../kin_model:net", "is not of the form package.module:factory"),
        ("kin_absent:net", "importing kin_absent failed: ModuleNotFoundError"),
        ("kin_broken:net", "ModuleNotFoundError: No module named 'no_such_thing_at_all'"),
        ("kin_model:no_arguments", r"cannot be called with \(input_shape, num_classes\)"),
        ("kin_model:a_list", "it returned a list, it must return an nn.Module"),
        ("kin_model:broken", r"\(1, 6, 6\) and 3 classes failed: KeyError: 'weights.bin'"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_a_factory_that_cannot_be_used_is_refused(name: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        build_model(name, SHAPE, 3, "group", 0)

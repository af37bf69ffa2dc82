"""What a trainer looks at before anything is mixed: results, and updates for a relay."""

from pathlib import Path

import pytest
import torch

from peer.admit import AdmitOptions
from peer.exchange import Origin, write_contribution
from peer.inspection import Inspector
from peer.work import Inspect
from protocol.ids import PeerId
from protocol.params import Params
from protocol.round import Trained

OWN: Params = {"w": torch.tensor([3.0, 4.0]), "b": torch.zeros(1)}  # of norm 5


def fault(
    tmp_path: Path,
    params: Params,
    *,
    buffers: Params | None = None,
    updates: bool = False,
    admit: AdmitOptions | None = None,
) -> str:
    trained = Trained(params=params, buffers=buffers or {}, num_examples=1, num_steps=1)
    origin = Origin(run=bytes(16), sender=PeerId("b"), round_no=1, base=b"", degree=1)
    ref = write_contribution(tmp_path / "b.safetensors", origin, trained)
    inspector = Inspector(admit or AdmitOptions(), lambda: OWN)
    return inspector.inspect(Inspect("b", ref), updates=updates).fault


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({**OWN}, ""),
        ({"w": OWN["w"]}, ""),  # a part: the rest stays with the peer
        ({}, ""),  # nothing but extras
        ({"v": torch.ones(2)}, "a tensor v that the model does not have"),
        ({"w": torch.ones(3)}, "w of shape (3,), not (2,)"),
        ({"w": torch.tensor([1.0, torch.nan])}, "params/w holds a NaN or an infinity"),
        ({"w": torch.tensor([300.0, 400.0])}, "norm"),
    ],
)
def test_a_result_is_compared_with_the_own_model(tmp_path: Path, params: Params, told: str) -> None:
    found = fault(tmp_path, params)
    assert found.startswith(told) if told != "norm" else "norm" in found
    assert bool(found) is bool(told)


@pytest.mark.parametrize("length", [0.0, 1e-6, 1e6])
def test_no_length_of_an_update_is_absurd(tmp_path: Path, length: float) -> None:
    update = {name: length * torch.ones_like(tensor) for name, tensor in OWN.items()}
    assert fault(tmp_path, update, updates=True) == ""


def test_an_update_must_be_finite_and_of_the_model(tmp_path: Path) -> None:
    assert "NaN" in fault(tmp_path, {"w": torch.full((2,), torch.inf)}, updates=True)
    assert "shape" in fault(tmp_path, {"w": torch.ones(3)}, updates=True)


def test_running_statistics_are_looked_at_too(tmp_path: Path) -> None:
    found = fault(tmp_path, OWN, buffers={"m": torch.tensor([torch.nan])})
    assert found.startswith("buffers/m holds")


def test_what_a_study_switches_off_is_not_looked_at(tmp_path: Path) -> None:
    wild = {"w": torch.tensor([torch.nan, 1e9])}
    assert fault(tmp_path, wild, admit=AdmitOptions(finite=False, norm=False)) == ""

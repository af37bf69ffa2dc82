"""What private training costs, against opacus and closed forms; and that a run tells it."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from opacus.accountants import RDPAccountant
from scipy.optimize import brentq
from scipy.stats import norm as normal
from torch import nn

from peer.entries import record_of, written
from peer.exchange import read_contribution
from peer.ledger import EVENTS, read_events
from peer.models.describe import describe
from peer.options.fields import Value
from peer.options.solvers import PrivacyOptions
from peer.privacy import check_private, epsilon
from peer.record import RoundRecord
from protocol.errors import ConfigError
from tests.unit.common.hamlet import Hamlet
from tests.unit.methods.making import CPU, small_model, small_task
from tests.unit.training.classroom import Pupil

PRIVATE: dict[str, Value] = {
    "method": "gossip",
    "solver.dp_noise": 1.0,
    "solver.dp_chance": "seeded",
}


def spent(noise: float, num_batches: int, num_steps: int, delta: float = 1e-5) -> float:
    options = PrivacyOptions(dp_noise=noise, dp_delta=delta)
    return epsilon(options, num_batches=num_batches, num_steps=num_steps)


@pytest.mark.parametrize(
    ("noise", "num_batches", "num_steps"), [(1.0, 10, 100), (0.6, 50, 500), (2.0, 3, 30)]
)
def test_epsilon_is_that_of_the_accountant_of_opacus(
    noise: float, num_batches: int, num_steps: int
) -> None:
    accountant = RDPAccountant()
    for _ in range(num_steps):
        accountant.step(noise_multiplier=noise, sample_rate=1.0 / num_batches)
    assert spent(noise, num_batches, num_steps) == pytest.approx(
        accountant.get_epsilon(1e-5), rel=1e-9
    )


def exact_gaussian(mu: float, delta: float) -> float:
    """Balle and Wang, 2018, arXiv 1805.06083, Theorem 5; mu is sqrt(steps) / noise."""

    def excess(eps: float) -> float:
        tail = normal.logcdf(-mu / 2.0 - eps / mu)
        return float(normal.cdf(mu / 2.0 - eps / mu) - math.exp(eps + tail) - delta)

    return float(brentq(excess, 0.0, 1000.0))


@pytest.mark.parametrize(("noise", "num_steps"), [(1.0, 1), (4.0, 10), (20.0, 5), (5.0, 200)])
def test_epsilon_of_full_batches_is_that_of_the_gaussian_mechanism(
    noise: float, num_steps: int
) -> None:
    exact = exact_gaussian(math.sqrt(num_steps) / noise, 1e-5)
    found = spent(noise, 1, num_steps)
    assert exact <= found <= 1.15 * exact  # a bound, and a close one


def test_epsilon_grows_with_steps_and_shrinks_with_noise() -> None:
    assert spent(1.0, 10, 0) == 0.0
    assert spent(1.0, 10, 10) < spent(1.0, 10, 20) < spent(0.5, 10, 20)
    assert spent(1000.0, 1, 1) < 0.1  # the best order is the largest: a bound without a warning


# -- in a run ----------------------------------------------------------------------------------


def test_a_round_tells_what_was_spent_so_far(tmp_path: Path) -> None:
    pupil = Pupil(tmp_path, "a", **PRIVATE)
    found = []
    for round_no in (1, 2, 3):
        pupil.play(round_no, [])
        found.append(pupil.done.epsilon)
    assert found == pytest.approx([spent(1.0, 2, 2 * n) for n in (1, 2, 3)])  # 64 / 32 batches


def test_a_private_peer_does_not_tell_how_many_of_each_class_it_has(tmp_path: Path) -> None:
    told = {}
    plain: dict[str, Value] = {"method": "gossip"}
    for name, options in (("a", plain), ("b", PRIVATE)):
        ref, _ = Pupil(tmp_path, name, **options).play(1, [])
        told[name] = read_contribution(ref).trained.class_counts
    assert (len(told["a"]), len(told["b"])) == (10, 0)


def test_events_and_summary_tell_epsilon(tmp_path: Path) -> None:
    options: dict[str, Value] = {"solver.dp_noise": 1.0, "solver.dp_chance": "seeded"}
    hamlet = Hamlet(tmp_path, "gossip", 2, **options)
    hamlet.play()
    run = tmp_path / "runs" / "a"
    rounds = [e.fields["epsilon"] for e in read_events(run / EVENTS) if e.name == "round"]
    assert rounds == pytest.approx([spent(1.0, 2, 2), spent(1.0, 2, 4)])
    assert json.loads((run / "summary.json").read_text())["epsilon"] == rounds[-1]


def test_batchnorm_is_refused_with_the_reason() -> None:
    model = small_model("batch")
    with pytest.raises(
        ConfigError, match=r"BatchNorm mixes the examples .*take model.norm = group"
    ):
        check_private(PrivacyOptions(dp_noise=1.0), model, small_task(model))


class Deciding(nn.Module):
    """Looks at a value to decide, which cannot be done for all examples at once."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        out: torch.Tensor = self.head(flat if flat.sum() > 0 else -flat)
        return out


def test_a_model_without_gradients_of_each_example_is_refused() -> None:
    model = describe("deciding", Deciding(), (1, 6, 6), 3).to(CPU)
    with pytest.raises(ConfigError, match="no gradient of it for each example alone"):
        check_private(PrivacyOptions(dp_noise=1.0), model, small_task(model))


class Hidden:
    """A finder of modules that does not find opacus."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, *rest: Any) -> Any:
        return None if name == "opacus" else self._finder.find_spec(name, *rest)


def test_without_opacus_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opacus")
    monkeypatch.setattr(sys, "meta_path", [Hidden(finder) for finder in sys.meta_path])
    model = small_model()
    with pytest.raises(ConfigError, match=r"opacus .* is not installed - pip install 'kinfolk\[dp"):
        check_private(PrivacyOptions(dp_noise=1.0), model, small_task(model))


@pytest.mark.parametrize("spent_so_far", [None, 0.0, 1.5])
def test_what_was_spent_survives_a_crash(spent_so_far: float | None) -> None:
    record = RoundRecord(
        round_no=1, used={}, stale={}, missing=(), refused={}, epsilon=spent_so_far
    )
    assert record_of(written(record)) == record

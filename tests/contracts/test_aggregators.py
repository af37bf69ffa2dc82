"""Every aggregator of the registry keeps the contract of its slot."""

from collections.abc import Mapping

import pytest

from peer.methods import AGGREGATORS
from peer.options.aggregators import AGGREGATORS as DECLARED
from peer.options.fields import Value, build
from tests.contracts.aggregator import AggregatorContract

VARIANTS: Mapping[str, tuple[str, Mapping[str, Value]]] = {
    "afl": ("afl", {}),
    "config": ("config", {}),
    "config, summed": ("config", {"length": "sum", "lr": 0.5}),
    "craft": ("craft", {}),
    "craft by tensor, nearest of the hull": ("craft", {"groups": "tensor", "policy": "minnorm"}),
    "craft of all, as long as projections": ("craft", {"groups": "global", "length": "projection"}),
    "craft, as long as the mean, skipping": ("craft", {"length": "mean-norm", "policy": "skip"}),
    "craft, one as it came, in steps": (
        "craft",
        {"single": "raw", "schedule": "step", "decay_rounds": 1},
    ),
    "craft where fedconst goes": ("craft", {"project": "fedconst", "schedule": "inverse-sqrt"}),
    "fedavg": ("fedavg", {}),
    "fedavgm": ("fedavgm", {}),
    "feddyn": ("feddyn", {}),
    "fedfv": ("fedfv", {}),
    "fedfv, remembering": ("fedfv", {"tau": 3, "alpha": 0.0}),
    "fedlf": ("fedlf", {}),
    "fednova": ("fednova", {}),
    "qfedavg": ("qfedavg", {}),
    "qfedavg, steep": ("qfedavg", {"q": 5.0}),
    "scaffold": ("scaffold", {}),
}


def test_every_aggregator_is_held_to_the_contract() -> None:
    assert {name for name, _ in VARIANTS.values()} == set(AGGREGATORS)


@pytest.mark.parametrize("variant", VARIANTS)
class TestAggregators(AggregatorContract):
    @pytest.fixture(autouse=True)
    def choose(self, variant: str) -> None:
        name, options = VARIANTS[variant]
        self.aggregator = AGGREGATORS[name](build(DECLARED[name].options, options))

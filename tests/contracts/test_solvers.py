"""Every solver of the registry keeps the contract of its slot."""

from collections.abc import Mapping

import pytest

from peer.methods import SOLVERS
from peer.options.fields import Value, build
from peer.options.methods import SOLVERS as ENTRIES
from tests.contracts.solver import SolverContract

VARIANTS: Mapping[str, Mapping[str, Value]] = {
    "ditto": {"solver": "ditto"},
    "ditto, momentum": {"solver": "ditto", "momentum": 0.9, "epochs": 2},
    "fedalign": {"solver": "fedalign"},
    "fedconst": {"solver": "fedconst"},
    "fedconst in sequence": {"solver": "fedconst", "mode": "sequential"},
    "fedconst, momentum": {"solver": "fedconst", "momentum": 0.9, "epochs": 2},
    "fedconst, adam": {"solver": "fedconst", "optimiser": "adam", "lr": 0.001},
    "feddyn": {"solver": "feddyn"},
    "fedic": {"solver": "fedic"},
    "fedproto": {"solver": "fedproto", "momentum": 0.5, "epochs": 2},
    "fedprox": {"solver": "fedprox", "mu": 1.0},
    "fedrep": {"solver": "fedrep", "head_epochs": 2},
    "fedrep, momentum": {"solver": "fedrep", "head_epochs": 1, "momentum": 0.5, "epochs": 2},
    "fedrod": {"solver": "fedrod"},
    "fedrod, momentum": {"solver": "fedrod", "momentum": 0.9, "epochs": 2},
    "fedsam": {"solver": "fedsam"},
    "moon": {"solver": "moon", "width": 8},
    "scaffold": {"solver": "scaffold"},
    "scaffold, momentum": {"solver": "scaffold", "momentum": 0.9, "epochs": 2},
    "sgd": {"solver": "sgd"},
    "sgd, private": {"solver": "sgd", "dp_noise": 1.0, "dp_chance": "seeded"},
    "fedprox, private": {"solver": "fedprox", "mu": 1.0, "dp_noise": 0.5, "dp_chance": "seeded"},
    "fedconst, private": {"solver": "fedconst", "dp_noise": 0.5, "dp_chance": "seeded"},
    "sgd, nesterov": {"solver": "sgd", "momentum": 0.9, "nesterov": True},
}


def test_every_solver_is_held_to_the_contract() -> None:
    assert {options["solver"] for options in VARIANTS.values()} == set(SOLVERS)


@pytest.mark.parametrize("variant", VARIANTS)
class TestSolvers(SolverContract):
    @pytest.fixture(autouse=True)
    def choose(self, variant: str) -> None:
        name, options = str(VARIANTS[variant]["solver"]), dict(VARIANTS[variant])
        if "dp_noise" in options:
            self.norm = "none"
        self.solver = SOLVERS[name](build(ENTRIES[name].options, options))

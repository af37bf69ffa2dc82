"""Every solver of the registry keeps the contract of its slot."""

from collections.abc import Mapping

import pytest

from peer.methods import make_method
from peer.options.fields import Value
from peer.options.methods import SOLVERS
from peer.options.recipe import expand
from tests.contracts.solver import SolverContract

VARIANTS: Mapping[str, Mapping[str, Value]] = {
    "fedconst": {"solver": "fedconst"},
    "fedconst in sequence": {"solver": "fedconst", "solver.mode": "sequential"},
    "fedconst, momentum": {"solver": "fedconst", "solver.momentum": 0.9, "solver.epochs": 2},
    "sgd": {"solver": "sgd"},
    "sgd, nesterov": {"solver": "sgd", "solver.momentum": 0.9, "solver.nesterov": True},
}


def test_every_solver_is_held_to_the_contract() -> None:
    assert {options["solver"] for options in VARIANTS.values()} == set(SOLVERS)


@pytest.mark.parametrize("variant", VARIANTS)
class TestSolvers(SolverContract):
    @pytest.fixture(autouse=True)
    def choose(self, variant: str) -> None:
        self.solver = make_method(expand("local", VARIANTS[variant])).solver

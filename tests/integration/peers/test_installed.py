"""A run with a method that comes with a package, and a peer on a host that lacks it."""

import os
from pathlib import Path

import pytest

from tests.installed import EXAMPLE, install_project
from tests.integration.peers.village import LOOPBACK, village
from tests.unit.training.classroom import write_digits

pytestmark = pytest.mark.long


def test_a_peer_without_the_package_refuses_the_run_and_names_the_method(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install_project(site, EXAMPLE)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    with village(tmp_path / "village") as here:
        for number, name in enumerate(("ada", "ben")):
            write_digits(here.shards / f"{name}.npz", first=200 * number, num=32, num_test=10)
        has, lacks = here.user(PYTHONPATH=path), here.user()
        coordinator = has.coordinator(*LOOPBACK, founders=2)
        lacks.environ["KINFOLK_JOIN"] = coordinator.out.strip().splitlines()[-1]
        options = ("--mixer=median", "--option=mixer.own_votes=2", "--solver=sgd", "--rounds=1")
        ada = has.peer("ada", "--method=gossip", "--model=mlp", *options, *LOOPBACK)
        ada.wait_for_event("started")  # the run has its manifest
        ben = lacks.peer("ben")
        assert ben.end() == 2
        (error,) = ben.errors()
        assert "there is no mixer 'median'" in error
        (started,) = ada.happenings("started")
        assert started["options"]["mixer"] == "median"
        assert started["options"]["mixer.own_votes"] == 2

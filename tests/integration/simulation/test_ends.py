"""Whoever the faults keep from finishing is no failure, in a simulation as in a launch."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from peer.experiment import load_experiment
from peer.ledger import EVENTS, read_events
from peer.simulation.run import Consoles, simulate

EXPERIMENT = """
[run]
rounds = 3
[model]
name = "mlp"
[method]
name = "gossip"
[data]
make = ["optdigits"]
peers = 4
samples_per_class = 2
size = 8
[[fault]]
kind = "kill"
at_round = 2
peer = "shard1"
[[fault]]
kind = "freeze"
at_round = 2
peer = "shard2"
[[fault]]
kind = "join"
at_s = 3000
peer = "shard3"
"""


@pytest.mark.long
def test_who_is_killed_frozen_or_too_late_is_gone_and_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "ends.toml"
    file.write_text(EXPERIMENT)
    quiet = Consoles(Console(file=StringIO()), Console(file=StringIO()))
    assert simulate(load_experiment(file), tmp_path / "out", quiet, force=False) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["gone"], result["failed"]) == (["shard1", "shard2", "shard3"], [])
    events = read_events(tmp_path / "out" / "shard0" / EVENTS)
    assert [event.fields["round"] for event in events if event.name == "round"] == [1, 2, 3]

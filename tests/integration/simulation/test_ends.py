"""Whoever the faults keep from finishing is no failure, in a simulation as in a launch."""

import json
from pathlib import Path

import pytest

from peer.ledger import EVENTS, read_events
from tests.experiments import fault, small
from tests.integration.simulation.quiet import simulated

FAULTS = (
    fault("kill", at_round=2, peer="shard1"),
    fault("freeze", at_round=2, peer="shard2"),
    fault("join", at_s=3000, peer="shard3"),
)


@pytest.mark.long
def test_who_is_killed_frozen_or_too_late_is_gone_and_no_failure(tmp_path: Path) -> None:
    text = small("gossip", rounds=3, peers=4, samples_per_class=2, more="".join(FAULTS))
    out = simulated(tmp_path, text)
    result = json.loads((out / "result.json").read_text())
    assert (result["gone"], result["failed"]) == (["shard1", "shard2", "shard3"], [])
    events = read_events(out / "shard0" / EVENTS)
    assert [event.fields["round"] for event in events if event.name == "round"] == [1, 2, 3]

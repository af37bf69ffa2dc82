"""A simulation that times real steps first: virtual time goes by what it found."""

import json
from pathlib import Path

import pytest

from peer.ledger import EVENTS, read_events
from tests.experiments import small
from tests.integration.simulation.quiet import simulated

EXPERIMENT = small(
    "gossip",
    rounds=2,
    peers=2,
    more="""
[timing]
calibrate = true
mix_s = 0.5
[timing.peers.shard1]
step_s = 0.2
""",
)
STEPS = 2  # of a round: 40 samples in batches of 32


@pytest.mark.long
def test_virtual_time_goes_by_the_steps_that_were_measured(tmp_path: Path) -> None:
    out = simulated(tmp_path, EXPERIMENT)
    found = json.loads((out / "timing.json").read_text())
    assert 0.0 < found["step_s"] < 10.0
    assert found["step_s"] != 0.02  # the default: nothing was measured
    assert found["mix_s"] == found["peers"]["shard1"]["mix_s"] == 0.5
    assert found["peers"]["shard1"]["step_s"] == pytest.approx(10.0 * found["step_s"])
    for name, step_s in (("shard0", found["step_s"]), ("shard1", 10.0 * found["step_s"])):
        events = read_events(out / name / EVENTS)
        trained = [event.fields["train_s"] for event in events if event.name == "round"]
        assert trained == [pytest.approx(STEPS * step_s, abs=1e-4)] * 2

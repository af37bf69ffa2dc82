"""Every preset runs by its name on virtual time, with a relay wherever a relay has a part in it."""

from pathlib import Path
from typing import Any

import pytest

from peer.ledger import EVENTS, read_events
from peer.options.recipe import PRESETS, expand, read
from tests.integration.simulation.quiet import simulated

EXPERIMENT = """
[run]
rounds = 2
[method]
name = "{preset}"
[pace]
quorum = 1.0
[data]
shards = "{shards}"
{relay}
"""
QUICK = ("kinfolk",)  # of `make test`


def cases() -> list[Any]:
    made: list[Any] = []
    for preset in PRESETS:
        marks = [] if preset in QUICK else [pytest.mark.long]
        has_part = read(expand(preset, {})).aggregator.name != "none"
        made += [
            pytest.param(preset, with_relay, marks=marks, id=preset + "+relay" * with_relay)
            for with_relay in ([False, True] if has_part else [False])
        ]
    return made


@pytest.mark.parametrize(("preset", "with_relay"), cases())
def test_a_preset_runs(tmp_path: Path, shards: Path, preset: str, with_relay: bool) -> None:
    relay = "[relay]" if with_relay else ""
    out = simulated(tmp_path, EXPERIMENT.format(preset=preset, shards=shards, relay=relay))
    names = ["shard0", "shard1", "shard2", *(["relay"] if with_relay else [])]
    for name in names:
        events = read_events(out / name / EVENTS)
        rounds = [event.fields for event in events if event.name == "round"]
        assert [of["round"] for of in rounds] == [1, 2]
        assert not any(of["refused"] for of in rounds)

"""Every preset runs by its name on virtual time, with a relay wherever a relay has a part in it."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from peer.data.make import make_shards
from peer.data.options import MakeOptions
from peer.experiment import load_experiment
from peer.ledger import EVENTS, read_events
from peer.options.recipe import PRESETS, expand, read
from peer.simulation.run import Consoles, simulate

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


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("by-name") / "shards"
    options = {"sources": "optdigits", "peers": 3, "samples_per_class": 2, "size": 12}
    make_shards(MakeOptions.from_mapping(options, base=folder), folder, force=False)
    return folder


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
    file = tmp_path / "one.toml"
    file.write_text(EXPERIMENT.format(preset=preset, shards=shards, relay=relay))
    quiet = Consoles(Console(file=StringIO()), Console(file=StringIO()))
    assert simulate(load_experiment(file), tmp_path / "out", quiet, force=False) == 0
    names = ["shard0", "shard1", "shard2", *(["relay"] if with_relay else [])]
    for name in names:
        events = read_events(tmp_path / "out" / name / EVENTS)
        rounds = [event.fields for event in events if event.name == "round"]
        assert [of["round"] for of in rounds] == [1, 2]
        assert not any(of["refused"] for of in rounds)

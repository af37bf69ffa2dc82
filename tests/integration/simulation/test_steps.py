"""Results as steps, on virtual time: when one is enough, and with whatever else a run may have."""

from pathlib import Path

import pytest

from peer.ledger import EVENTS, Event, read_events
from protocol.steps import STEPS
from tests.experiments import fault
from tests.integration.simulation.quiet import simulated

EXPERIMENT = """
[run]
rounds = {rounds}
participation = {participation}
[method]
name = "{method}"
[model]
name = "{model}"
[share]
codec = "{codec}"
[pace]
quorum = 1.0
{pace}
[data]
shards = "{shards}"
{more}
"""
CUT = fault("partition", at_round=4, until_round=5, groups=[["shard0"], ["shard1", "shard2"]])
LATE = fault("join", at_round=4, peer="shard2")


def play(
    folder: Path,
    shards: Path,
    codec: str,
    *,
    method: str = "gossip",
    model: str = "mlp",
    rounds: int = 6,
    participation: float = 1.0,
    pace: str = "",
    more: str = "",
) -> dict[str, list[Event]]:
    """The rounds of each peer."""
    text = EXPERIMENT.format(
        codec=codec, shards=shards, method=method, model=model, rounds=rounds,
        participation=participation, pace=pace, more=more,
    )  # fmt: skip
    out = simulated(folder, text)
    events = {path.parent.name: read_events(path) for path in out.glob(f"*/{EVENTS}")}
    assert not [e for of_peer in events.values() for e in of_peer if e.name == "pull-failed"]
    return {name: [e for e in told if e.name == "round"] for name, told in events.items()}


def pulled(event: Event) -> dict[str, int]:
    found = event.fields["pulled"]
    assert isinstance(found, dict)
    return {str(name): int(num_bytes) for name, num_bytes in found.items()}


def refused(event: Event) -> set[str]:
    found = event.fields["refused"]
    assert isinstance(found, dict)
    return {str(reason) for reason in found.values()}


@pytest.mark.parametrize("codec", ["delta", pytest.param("topk", marks=pytest.mark.long)])
def test_a_step_comes_to_whom_has_the_round_before_and_all_to_whom_has_not(
    tmp_path: Path, shards: Path, codec: str
) -> None:
    by_round = [pulled(event) for event in play(tmp_path, shards, codec, more=CUT)["shard1"]]
    whole, step = by_round[1]["shard2"], by_round[2]["shard2"]
    assert step < 0.4 * whole
    assert by_round == [
        {},
        {"shard0": whole, "shard2": whole},  # first contact
        {"shard0": step, "shard2": step},
        {"shard2": step},  # cut off from shard0
        {"shard0": whole, "shard2": step},  # whose round 3 never came
        {"shard0": step, "shard2": step},
    ]


@pytest.mark.long
@pytest.mark.parametrize("codec", sorted(STEPS))
def test_a_late_joiner_begins_with_whole_results(tmp_path: Path, shards: Path, codec: str) -> None:
    by_name = play(tmp_path, shards, codec, more=LATE)
    first, second, *_ = [pulled(event) for event in by_name["shard2"]]
    assert set(first) == set(second) == {"shard0", "shard1"}
    assert max(second.values()) < 0.4 * min(first.values())


RUNS = {
    "async": {"pace": 'mode = "async"'},
    "participation": {"participation": 0.6, "rounds": 10},
    "kinfolk": {"method": "kinfolk"},
    "relay-beside": {"method": "kinfolk", "more": "[relay]"},
    "batchnorm": {"model": "resnet20", "more": '[mix]\nbuffers = "average"'},
    "fedproto": {"method": "fedproto"},
    "fedrep": {"method": "fedrep"},
    "fedcalm": {"method": "fedcalm"},
    "fedic": {"method": "fedic"},
    "fedrod": {"method": "fedrod"},
}
COMMON = {
    "craft": {"method": "craft"},
    "craft-relay": {"method": "craft", "more": "[relay]"},
    "scaffold": {"method": "scaffold"},
    "feddyn-relay": {"method": "feddyn", "more": "[relay]"},
    "late": {"method": "craft", "more": LATE},
    "resync": {"method": "craft", "more": CUT},
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("codec", "what"),
    [
        *((codec, what) for codec in sorted(STEPS) for what in RUNS),
        *(("delta", what) for what in COMMON),
    ],
)
def test_steps_go_with_whatever_else_a_run_has(
    tmp_path: Path, shards: Path, codec: str, what: str
) -> None:
    by_name = play(tmp_path, shards, codec, **(RUNS | COMMON)[what])  # type: ignore[arg-type]
    sizes = sorted({n for told in by_name.values() for e in told for n in pulled(e).values()})
    assert sizes[0] < 0.6 * sizes[-1], "no step was ever enough"
    reasons = {why for told in by_name.values() for e in told for why in refused(e)}
    assert reasons <= {"trained from another start"}  # who was cut off from a common model

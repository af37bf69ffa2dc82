"""A peer killed before any step to its disk goes on, and the run ends as if nothing had been."""

from pathlib import Path

import numpy as np
import pytest

from peer.influence import read_influence
from peer.ledger import read_events
from peer.summary import read_summary
from peer.verify import verify
from tests.faults.crashes import RELAY, Play, play

# What differs in what they remember: nothing, a common model, control variates, averages.
METHODS = ("kinfolk", "craft", "scaffold", "feddyn", "ditto", "fedrod")
STEPPED = ("kinfolk, delta", "kinfolk, topk", "craft, delta")  # and the replica that others hold
STEPS_AT_ONCE = 12  # of one test


def agrees(broken: Play, whole: Play) -> None:
    """The books of the run and of the victim are those of the unbroken run."""
    verdict = verify(whole.root, broken.root)
    assert verdict.first is None, str(verdict.first)
    assert verdict.snapshots == 3 * len(list(whole.root.glob("*/events.jsonl")))
    ours, theirs = broken.root / whole.victim, whole.root / whole.victim
    assert read_summary(ours / "summary.json") == read_summary(theirs / "summary.json")
    if (theirs / "influence.npz").exists():
        told, meant = (read_influence(folder / "influence.npz") for folder in (ours, theirs))
        assert told.peers == meant.peers
        np.testing.assert_array_equal(told.rounds, meant.rounds)
        np.testing.assert_array_equal(told.class_weight, meant.class_weight)
        np.testing.assert_array_equal(told.client_loss, meant.client_loss)
    rounds = [e.fields["round"] for e in read_events(ours / "events.jsonl") if e.name == "round"]
    assert rounds == [1, 2, 3]
    assert not list((ours / "state").rglob("*.part"))


def kill_at(folder: Path, method: str, whole: Play, number: int) -> None:
    broken = play(folder / f"killed-{number}", method=method, kill_at=number, victim=whole.victim)
    assert broken.killed, f"step {number} was never reached"
    try:
        agrees(broken, whole)
    except (AssertionError, OSError) as error:
        raise AssertionError(f"killed before step {number}, {whole.steps[number - 1]}") from error


def test_a_killed_peer_goes_on_and_the_run_ends_with_the_same_digests(tmp_path: Path) -> None:
    whole = play(tmp_path / "whole", method="kinfolk")
    steps = list(whole.steps)
    kinds = ("memory/", "journal/00000002.finished", "events.jsonl")
    for kind in kinds:
        number = max(n for n, what in enumerate(steps, 1) if kind in what and "remove" not in what)
        kill_at(tmp_path, "kinfolk", whole, number)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(12))
@pytest.mark.parametrize("method", METHODS + STEPPED)
def test_killed_before_any_step_the_run_ends_the_same(
    tmp_path: Path, method: str, part: int
) -> None:
    holds_to(tmp_path, play(tmp_path / "whole", method=method), method, part)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(12))
@pytest.mark.parametrize("method", ["craft", "scaffold", "craft, delta"])
def test_a_relay_killed_before_any_step_goes_on(tmp_path: Path, method: str, part: int) -> None:
    holds_to(tmp_path, play(tmp_path / "whole", method=method, victim=RELAY), method, part)


def holds_to(folder: Path, whole: Play, method: str, part: int) -> None:
    """Kill at each step of one part of the run."""
    first = part * STEPS_AT_ONCE + 1
    for number in range(first, min(first + STEPS_AT_ONCE, len(whole.steps) + 1)):
        kill_at(folder, method, whole, number)
    assert len(whole.steps) <= 12 * STEPS_AT_ONCE, "more steps than there are tests for them"

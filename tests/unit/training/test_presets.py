"""Every preset through the trainer: two peers, four rounds, real files between them."""

from pathlib import Path

import pytest

from peer.options.recipe import PRESETS
from peer.work import SnapshotRef
from tests.unit.training.classroom import Pupil


@pytest.mark.parametrize("preset", PRESETS)
def test_two_peers_learn(tmp_path: Path, preset: str) -> None:
    pupils = [
        Pupil(tmp_path, name, method=preset, model="cnn", **{"solver.epochs": 2}) for name in "ab"
    ]
    losses = []
    refs: dict[str, SnapshotRef] = {}
    for round_no in range(1, 5):
        alone = pupils[0].prepared.exchange == "none" or not refs
        inputs = {
            p.name: [] if alone else [refs[o.name] for o in pupils if o is not p] for p in pupils
        }
        refs = {p.name: p.play(round_no, inputs[p.name])[0] for p in pupils}
        assert not any(p.mixed.adopt or p.mixed.unused for p in pupils)
        losses.append(sum(p.done.loss for p in pupils))
    assert min(losses) > 0.0  # a loss that is not finite is told as -1
    assert losses[-1] < losses[0]

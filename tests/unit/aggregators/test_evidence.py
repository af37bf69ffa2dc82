"""What a contribution must bring before it may be aggregated, and the reason if it does not."""

import math
from typing import Any

import pytest
import torch

from peer.aggregators.evidence import lacks
from peer.options.aggregators import AGGREGATORS
from peer.options.entry import Need
from protocol.round import Start
from tests.unit.aggregators.making import sent

W = {"w": torch.zeros(2)}
START = Start(W, {"mean": torch.zeros(1)})
ALL = frozenset(Need)


def told(needs: frozenset[Need] = ALL, **evidence: Any) -> str:
    complete = {"params": W, "buffers": START.buffers, "extras": W, "start_loss": 0.5}
    facts = {**complete, **evidence}
    return lacks(needs, START, sent("a", facts.pop("params"), **facts))


def test_a_complete_contribution_lacks_nothing() -> None:
    assert told() == ""


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ({"params": {"v": torch.zeros(2)}}, "its tensors are not those of the start"),
        ({"params": {"w": torch.zeros(3)}}, "its tensors are not those of the start"),
        ({"buffers": {}}, "its tensors are not those of the start"),
        ({"num_examples": 0}, "0 examples and 1 steps, both must be >= 1"),
        ({"num_steps": 0}, "1 examples and 0 steps"),
        ({"nova_a": -1.0}, "nova_a is -1.0, must be finite and >= 0"),
        ({"nova_a": math.nan}, "nova_a is nan"),
        ({"lr": 0.0}, "lr is 0.0, must be finite and > 0"),
        ({"lr": math.inf}, "lr is inf"),
        ({"start_loss": math.nan}, "start_loss is nan, must be finite and >= 0"),
        ({"start_loss": -1.0}, "start_loss is -1.0"),
        ({"extras": {}}, "its extras hold no control variate for each parameter"),
        ({"extras": {"w": torch.zeros(3)}}, "its extras hold no control variate"),
    ],
)
def test_what_is_missing_is_told(evidence: dict[str, Any], reason: str) -> None:
    assert told(**evidence).startswith(reason)


def test_nobody_asks_for_what_the_method_does_not_need() -> None:
    bare = {"lr": 0.0, "start_loss": math.nan, "extras": {}}
    assert told(AGGREGATORS["craft"].needs, **bare) == ""
    assert told(AGGREGATORS["qfedavg"].needs, **bare).startswith("lr is")
    assert told(AGGREGATORS["fedfv"].needs, **bare).startswith("start_loss is")
    assert told(AGGREGATORS["scaffold"].needs, **bare).startswith("its extras")


def test_who_goes_by_what_peers_say_of_their_start_needs_a_common_one() -> None:
    evidence = {Need.START_LOSS, Need.VARIATES, Need.DYNAMIC}
    for entry in AGGREGATORS.values():
        assert (Need.COMMON_START in entry.needs) is bool(evidence & entry.needs)

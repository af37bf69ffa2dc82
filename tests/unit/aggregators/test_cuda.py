"""The same aggregators on a GPU: equal to the CPU up to rounding, state included."""

import pytest
import torch

from peer.methods import AGGREGATORS
from peer.options.aggregators import AGGREGATORS as DECLARED
from protocol.params import Params
from protocol.round import Start
from tests.unit.aggregators.making import aggregate, draw, sent


@pytest.mark.cuda
@pytest.mark.parametrize("name", AGGREGATORS)
def test_two_rounds_on_a_gpu_are_those_on_the_cpu(name: str) -> None:
    here, there = (two_rounds(name, torch.device(device)) for device in ("cpu", "cuda"))
    for tensor, expected in here.items():
        assert there[tensor].device.type == "cuda"
        torch.testing.assert_close(there[tensor].cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_rounds_of_that_test_run_on_the_cpu(name: str) -> None:
    assert list(two_rounds(name, torch.device("cpu"))) == ["a.weight", "a.bias"]


def two_rounds(name: str, device: torch.device) -> Params:
    """Where three peers take the common model in two rounds."""

    def point(seed: int) -> Params:
        shapes = {"a.weight": (4, 6), "a.bias": (4,)}
        drawn = {n: draw(seed + i, *shape) for i, (n, shape) in enumerate(shapes.items())}
        return {n: tensor.float().to(device) for n, tensor in drawn.items()}

    aggregator = AGGREGATORS[name](DECLARED[name].options())
    start = Start(point(0))
    state = aggregator.init(start)
    for round_no in range(2):
        contributions = [
            sent(peer, point(100 * k + 10 * round_no), start_loss=1.0 + k, extras=point(50))
            for k, peer in enumerate("abc", start=1)
        ]
        made, state = aggregate(aggregator, start, contributions, state)
        start = made.start
    return start.params

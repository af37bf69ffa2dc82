"""FedC2I with memory: influence as a running average over rounds."""

import math

import pytest
import torch

from peer.mixers.fedc2i import FedC2I
from peer.mixers.memory import remembered
from peer.options.mixers import FedC2IOptions
from protocol.ids import PeerId
from protocol.params import NO_STATE, Params, State
from protocol.round import Mixed
from tests.unit.families.hamlet import A, B, C
from tests.unit.methods.making import contribution, linear_point, linear_probe

D = PeerId("d")


def mix(
    options: FedC2IOptions, state: State, seed: int, senders: str = "abc"
) -> tuple[Mixed, State]:
    own, *others = (contribution(s, linear_point(seed + ord(s))) for s in senders)
    return FedC2I(options).mix(state, own, others, linear_probe(seed))


def test_an_average_is_of_scores_without_their_mean() -> None:
    now = torch.tensor([1.0, 3.0], dtype=torch.float64)  # -1 and 1 about their mean
    known: Params
    scores, known = remembered({}, [A, B], now, 0.75)
    assert scores.tolist() == [-1.0, 1.0]
    scores, known = remembered(known, [A, B], torch.tensor([9.0, 5.0]).double(), 0.75)
    assert scores.tolist() == [-0.25, 0.25]  # 0.75 * -1 + 0.25 * 2
    assert {name: score.item() for name, score in known.items()} == {A: -0.25, B: 0.25}


def test_who_was_away_is_found_again_and_who_is_new_begins_anew() -> None:
    known: Params = {A: torch.tensor(-1.0).double(), B: torch.tensor(1.0).double()}
    scores, known = remembered(known, [A, C], torch.tensor([2.0, 4.0]).double(), 0.5)
    assert scores.tolist() == [-1.0, 1.0]
    assert known[B].item() == 1.0


def test_classes_are_remembered_each_for_itself() -> None:
    known: Params = {A: torch.tensor([1.0, 0.0]).double(), B: torch.tensor([-1.0, 0.0]).double()}
    now = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    scores, _ = remembered(known, [A, B], now, 0.5)
    assert scores.tolist() == [[0.5, 0.5], [-0.5, -0.5]]


def test_the_first_round_with_memory_is_one_without() -> None:
    plain, nothing = mix(FedC2IOptions(), NO_STATE, 0)
    first, state = mix(FedC2IOptions(memory=0.9), NO_STATE, 0)
    assert nothing is NO_STATE
    assert first.client_weight == pytest.approx(plain.client_weight, rel=1e-12)
    for sender, rows in plain.class_weight.items():
        assert first.class_weight[sender] == pytest.approx(rows, rel=1e-12)
    assert list(state["client_scores"]) == list(state["class_scores"]) == [A, B, C]


def test_three_rounds_are_those_of_a_naive_twin() -> None:
    options, state = FedC2IOptions(gamma=5.0, memory=0.6), NO_STATE
    average: dict[PeerId, float] = {}
    for seed in range(3):
        mixed, state = mix(options, state, seed)
        logs = {name: math.log(value) for name, value in mixed.client_loss.items()}
        middle = sum(logs.values()) / len(logs)
        for name, value in logs.items():
            now = value - middle
            average[name] = 0.6 * average[name] + 0.4 * now if name in average else now
        raw = {name: math.exp(5.0 * value) for name, value in average.items()}
        expected = {name: value / sum(raw.values()) for name, value in raw.items()}
        assert mixed.client_weight == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("level", "kept"), [("client", ["client_scores"]), ("class", ["class_scores"])]
)
def test_what_is_not_asked_is_not_remembered(level: str, kept: list[str]) -> None:
    options = FedC2IOptions(level=level, memory=0.5)  # type: ignore[arg-type]  # one of them
    _, state = mix(options, NO_STATE, 0)
    assert [name for name, scores in state.items() if scores] == kept


def test_a_peer_alone_forgets_nothing() -> None:
    options = FedC2IOptions(memory=0.5)
    _, state = mix(options, NO_STATE, 0)
    _, after = mix(options, state, 1, senders="a")
    assert after is state

"""Which model is served: right most often, beyond one standard error, against a naive choice."""

import math
from fractions import Fraction
from random import Random
from statistics import fmean, variance

import pytest
import torch

from peer.evaluate import Outcomes
from peer.serving import Point, between, choose


def point(name: str, value: float = 0.0) -> Point:
    return Point(name, {"w": torch.tensor([value])}, {"n": torch.tensor([int(value)])})


def outcomes(correct: list[bool], losses: list[float] | None = None) -> Outcomes:
    return Outcomes(
        torch.tensor(losses or [1.0] * len(correct), dtype=torch.float64), torch.tensor(correct)
    )


def naive(own: list[bool], others: dict[str, tuple[list[bool], float]]) -> str:
    """The choice, by the book: the mean of paired differences against its standard error."""
    passing = []
    for name, (correct, loss) in others.items():
        paired = [Fraction(int(a) - int(b)) for a, b in zip(correct, own, strict=True)]
        mean = sum(paired) / len(paired)
        if mean > 0 and mean**2 > variance(paired) / len(paired):
            passing.append((-mean, loss, list(others).index(name), name))
    return min(passing)[3] if passing else "own"


@pytest.mark.parametrize("seed", range(200))
def test_what_is_served_is_the_best_of_those_that_are_better_beyond_noise(seed: int) -> None:
    draw = Random(seed)
    count = draw.randint(2, 30)
    skill = {name: draw.random() for name in ("own", "a", "b", "c")}
    right = {name: [draw.random() < p for _ in range(count)] for name, p in skill.items()}
    loss = {name: draw.choice([0.5, 1.0, 2.0]) for name in "abc"}
    served, candidates = choose(
        (point("own"), outcomes(right["own"])),
        ((point(n), outcomes(right[n], [loss[n]] * count)) for n in "abc"),
    )
    assert served.name == naive(right["own"], {n: (right[n], loss[n]) for n in "abc"})
    assert [c.name for c in candidates] == ["a", "b", "c"]
    assert [c.val_accuracy for c in candidates] == pytest.approx([fmean(right[n]) for n in "abc"])


def test_a_better_model_within_noise_is_not_served() -> None:
    own = outcomes([True, False, False, True])
    other = outcomes([False, True, True, True])
    served, (candidate,) = choose((point("trained"), own), [(point("twin"), other)])
    assert (candidate.wins, candidate.defeats) == (2, 1)  # 1 * 1 is not above 2 + 1
    assert served.name == "trained"


def test_beyond_noise_it_is() -> None:
    own = outcomes([True, False, False, False, False, False])
    other = outcomes([False, True, True, True, True, False])
    served, (candidate,) = choose((point("trained"), own), [(point("twin"), other)])
    assert (candidate.wins, candidate.defeats) == (4, 1)  # 3 * 3 is above 4 + 1
    assert served.name == "twin"


def test_what_came_out_of_the_round_wins_ties() -> None:
    same = outcomes([True, False])
    served, _ = choose((point("trained"), same), [(point("twin"), same), (point("mixed"), same)])
    assert served.name == "trained"


def test_of_two_that_are_right_equally_often_the_one_of_less_loss_is_served() -> None:
    own = outcomes([False] * 4)
    served, _ = choose(
        (point("trained"), own),
        [
            (point("mixed"), outcomes([True] * 4, [0.5] * 4)),
            (point("twin"), outcomes([True] * 4, [0.25] * 4)),
        ],
    )
    assert served.name == "twin"


def test_a_model_whose_output_is_not_finite_is_never_better() -> None:
    broken = outcomes([False] * 4, [math.nan] * 4)
    served, (candidate,) = choose(
        (point("trained"), outcomes([False] * 4)), [(point("twin"), broken)]
    )
    assert served.name == "trained"
    assert candidate.val_loss == 1e300


def test_one_example_tells_nothing() -> None:
    served, _ = choose((point("trained"), outcomes([False])), [(point("twin"), outcomes([True]))])
    assert served.name == "trained"


def test_a_point_between_two_has_their_shares_and_the_larger_counter() -> None:
    found = between(point("trained", 2.0), point("twin", 6.0), 0.25)
    assert (found.name, found.share) == ("trained+twin", 0.25)
    assert found.params["w"].tolist() == [3.0]
    assert found.buffers["n"].tolist() == [6]

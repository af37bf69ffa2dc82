"""The other aggregators by hand, and where one is another: q = 0, no momentum, equal steps ..."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from peer.aggregators.afl import Afl
from peer.aggregators.base import Aggregator
from peer.aggregators.config import ConFig
from peer.aggregators.fedavg import FedAvgServer
from peer.aggregators.fedavgm import FedAvgM
from peer.aggregators.feddyn import FedDynServer
from peer.aggregators.fedfv import FedFV
from peer.aggregators.fedlf import FedLF
from peer.aggregators.fednova import FedNova
from peer.aggregators.qfedavg import QFedAvg
from peer.aggregators.scaffold import ScaffoldServer
from peer.methods import AGGREGATORS
from peer.options.aggregators import AGGREGATORS as DECLARED
from peer.options.aggregators import (
    AflOptions,
    ConFigOptions,
    CraftOptions,
    FedAvgMOptions,
    FedFVOptions,
    QFedAvgOptions,
    ScaffoldServerOptions,
)
from peer.options.methods import DescentOptions
from peer.solvers.optimiser import Momentum
from protocol.errors import ConfigError
from protocol.round import Start
from tests.unit.aggregators.making import (
    ROSTER,
    aggregate,
    draw,
    moved,
    one_tensor,
    sent,
    step_of,
    vector,
)

ROWS = [draw(i, 12) + 0.5 for i in range(4)]
EXAMPLES = [1, 2, 3, 10]
MEAN = torch.stack(ROWS).mean(dim=0)
BY_SAMPLES = sum(n / 16 * row for n, row in zip(EXAMPLES, ROWS, strict=True))


def steps_of(aggregator: Aggregator, updates: Sequence[Tensor], rounds: int) -> list[Tensor]:
    """What each of some equal rounds takes away."""
    start, contributions = one_tensor(updates)
    state, steps = aggregator.init(start), []
    for _ in range(rounds):
        made, state = aggregate(aggregator, start, contributions, state)
        steps.append(moved(start, made)["w"])
    return steps


# --- every one -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(AGGREGATORS) - {"craft", "feddyn"}))
def test_one_peer_alone_is_followed_to_where_it_went(name: str) -> None:
    # also the sign: a step of SGD taken by the peer is taken by all
    start = Start({"w": draw(1, 3), "v": draw(2, 2)})
    trained = {"w": draw(3, 3), "v": draw(4, 2)}
    extras = {"w": torch.zeros(3), "v": torch.zeros(2)}
    one = sent("a", trained, start_loss=1.0, lr=0.1, num_steps=3, extras=extras)
    options = QFedAvgOptions(q=0.0) if name == "qfedavg" else DECLARED[name].options()
    made, _ = aggregate(AGGREGATORS[name](options), start, [one])
    for tensor, expected in trained.items():
        torch.testing.assert_close(made.start.params[tensor], expected)


@pytest.mark.parametrize("name", ["config", "craft", "fedfv", "fedlf"])
def test_a_peer_without_numbers_has_no_say_where_directions_are_compared(name: str) -> None:
    aggregator = AGGREGATORS[name](DECLARED[name].options())
    start, contributions = one_tensor(
        [[1.0, 0.0], [math.nan, 1.0], [-1.0, 3.0], [1.0, math.inf]], start_loss=[4.0, 2.0, 3.0, 1.0]
    )
    state = aggregator.init(start)
    for _ in range(2):
        made, state = aggregate(aggregator, start, contributions, state)
        assert made.start.params["w"].isfinite().all()
        assert moved(start, made)["w"][1] > 0.0


def test_defaults_are_those_that_are_documented() -> None:
    craft = CraftOptions()
    assert (craft.lr, craft.groups, craft.tol, craft.max_norm) == (0.1, "module", 1e-6, 10.0)
    assert (craft.single, craft.length, craft.policy) == ("solve", "paper", "lstsq")
    assert (craft.schedule, craft.project) == ("constant", "none")
    assert FedAvgMOptions() == FedAvgMOptions(momentum=0.9, lr=1.0)
    assert AflOptions() == AflOptions(lambda_lr=0.1, lr=1.0)
    assert QFedAvgOptions() == QFedAvgOptions(q=1.0)
    assert FedFVOptions() == FedFVOptions(alpha=0.1, tau=1)
    assert ConFigOptions() == ConFigOptions(length="mean", lr=1.0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: CraftOptions(tol=0.0),
        lambda: FedAvgMOptions(momentum=1.0),
        lambda: AflOptions(lambda_lr=math.nan),
        lambda: QFedAvgOptions(q=-1.0),
        lambda: FedFVOptions(alpha=1.5),
        lambda: ConFigOptions(lr=0.0),
        lambda: ScaffoldServerOptions(lr=-1.0),
    ],
)
def test_options_out_of_bounds_are_refused(build: type) -> None:
    with pytest.raises(ConfigError, match="cannot be used: it must be"):
        build()


# --- means ---------------------------------------------------------------------------------------


def test_fedavg_weighs_by_samples() -> None:
    step = step_of(FedAvgServer(), [[4.0, 0.0], [0.0, 8.0]], num_examples=[3, 1])
    assert step.tolist() == [3.0, 2.0]


def test_fedavgm_without_momentum_is_fedavg() -> None:
    step = step_of(FedAvgM(FedAvgMOptions(momentum=0.0)), ROWS, num_examples=EXAMPLES)
    torch.testing.assert_close(step, BY_SAMPLES)


def test_fedavgm_goes_ten_times_as_far_along_a_constant_update() -> None:
    steps = steps_of(FedAvgM(), [vector([1.0])], 200)
    assert [step.item() for step in steps[:3]] == pytest.approx([1.0, 1.9, 2.71])
    assert steps[-1].item() == pytest.approx(10.0, rel=1e-6)


@pytest.mark.parametrize("steps", [1, 7])
def test_fednova_with_equal_steps_is_fedavg(steps: int) -> None:
    step = step_of(FedNova(), ROWS, num_examples=EXAMPLES, num_steps=[steps] * 4)
    torch.testing.assert_close(step, BY_SAMPLES)


def test_fednova_lets_a_peer_with_more_steps_pull_no_harder() -> None:
    # 1 and 9 steps of the same size: each direction gets the mean number of steps, 5, halved
    step = step_of(FedNova(), [[1.0, 0.0], [0.0, 9.0]], num_steps=[1, 9])
    assert step.tolist() == pytest.approx([2.5, 2.5])


def test_fednova_takes_what_the_solver_says_over_its_number_of_steps() -> None:
    step = step_of(FedNova(), [[4.0], [8.0]], num_steps=[1, 1], nova_a=[2.0, 8.0])
    assert step.item() == pytest.approx(0.5 * 5.0 * 2.0 + 0.5 * 5.0 * 1.0)


@pytest.mark.parametrize(("momentum", "steps"), [(0.0, 5), (0.5, 4), (0.9, 30)])
def test_fednova_s_recursion_is_its_closed_form(momentum: float, steps: int) -> None:
    r = momentum
    closed = (steps - r * (1 - r**steps) / (1 - r)) / (1 - r)
    found = Momentum(DescentOptions(lr=0.1, momentum=momentum)).weight_of_steps(steps)
    assert found == pytest.approx(closed)


# --- by loss -------------------------------------------------------------------------------------


def test_qfedavg_of_order_zero_is_the_uniform_mean() -> None:
    losses, rates = [0.1, 3.0, 1.0, 0.0], [0.05] * 4
    step = step_of(QFedAvg(QFedAvgOptions(q=0.0)), ROWS, start_loss=losses, lr=rates)
    torch.testing.assert_close(step, MEAN)


def test_qfedavg_by_hand() -> None:
    # q 1, L 2; losses 1 and 3, updates 1 and 2: D = 1*2*1 + 3*2*2 = 14, h = (2^2 + 2) + (4^2 + 6)
    step = step_of(QFedAvg(), [[1.0], [2.0]], start_loss=[1.0, 3.0], lr=[0.5, 0.5])
    assert step.item() == pytest.approx(14.0 / 28.0, rel=1e-9)


def test_afl_follows_the_losses_and_stays_on_the_simplex() -> None:
    aggregator = Afl(AflOptions(lambda_lr=0.1))
    start, contributions = one_tensor([[1.0, 0.0], [0.0, 1.0]], start_loss=[1.0, 3.0])
    made, state = aggregate(aggregator, start, contributions)
    assert moved(start, made)["w"].tolist() == [0.5, 0.5]  # before the losses count
    # 0.5 + 0.1 and 0.5 + 0.3, less 0.2 each
    assert [t.item() for t in state["lambda"].values()] == pytest.approx([0.4, 0.6])
    made, state = aggregate(aggregator, start, contributions, state)
    assert moved(start, made)["w"].tolist() == pytest.approx([0.4, 0.6])
    for _ in range(20):
        made, state = aggregate(aggregator, start, contributions, state)
        weights = torch.stack(list(state["lambda"].values()))
        assert weights.min() >= 0.0
        assert weights.sum().item() == pytest.approx(1.0)
    assert [t.item() for t in state["lambda"].values()] == [0.0, 1.0]
    assert made.notes["outside_definition"] == 0.0


def test_afl_s_result_is_the_mean_of_all_its_models() -> None:
    aggregator = Afl()
    start, contributions = one_tensor([[1.0, 4.0]], start_loss=[1.0])
    state, models = aggregator.init(start), []
    for _ in range(4):
        made, state = aggregate(aggregator, start, contributions, state)
        models.append(made.start.params["w"])
        start = made.start
    torch.testing.assert_close(state["average"]["w"], torch.stack(models).mean(dim=0))


def test_afl_without_all_peers_projects_over_those_present_and_says_so() -> None:
    aggregator = Afl(AflOptions(lambda_lr=0.1))
    start, everyone = one_tensor([[1.0], [10.0], [100.0]], start_loss=[1.0, 1.0, 4.0])
    made, state = aggregator.aggregate(aggregator.init(start), start, everyone[:2], ROSTER[:3])
    # a third each of two present: a half each; the absent one keeps its third
    assert moved(start, made)["w"].item() == pytest.approx(5.5)
    assert made.notes["outside_definition"] == 1.0
    assert [t.item() for t in state["lambda"].values()] == pytest.approx([0.5, 0.5, 1 / 3])
    made, _ = aggregator.aggregate(state, start, everyone, ROSTER[:3])
    # (1/2, 1/2, 1/3) less a ninth each
    assert made.notes["largest_weight"] == pytest.approx(0.5 - 1 / 9)
    assert made.notes["outside_definition"] == 0.0


# --- by conflict ---------------------------------------------------------------------------------


def test_fedfv_that_keeps_all_and_forgets_is_the_uniform_mean() -> None:
    step = step_of(FedFV(FedFVOptions(alpha=1.0, tau=0)), ROWS, start_loss=[3.0, 1.0, 2.0, 4.0])
    torch.testing.assert_close(step, MEAN)


def test_fedfv_without_conflict_is_the_uniform_mean() -> None:
    step = step_of(FedFV(FedFVOptions(alpha=0.0)), [[1.0, 0.0], [1.0, 1.0]], start_loss=[1.0, 2.0])
    assert step.tolist() == pytest.approx([1.0, 0.5])


def test_fedfv_frees_the_peer_with_the_smaller_loss() -> None:
    # (1, 0) against (-1, 1): the first loses its part along the second and becomes (1/2, 1/2)
    step = step_of(
        FedFV(FedFVOptions(alpha=0.5, tau=0)), [[1.0, 0.0], [-1.0, 1.0]], start_loss=[1.0, 2.0]
    )
    mean = vector([-0.25, 0.75])
    size = 0.5 / mean.norm()  # the plain mean is (0, 1/2)
    torch.testing.assert_close(step, size * mean)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_fedfv_of_exact_opposites_stays(alpha: float) -> None:
    step = step_of(
        FedFV(FedFVOptions(alpha=alpha)), [[1.0, 2.0], [-1.0, -2.0]], start_loss=[1.0, 2.0]
    )
    assert step.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("tau", "first", "then"), [(0, "", ""), (1, "", ""), (2, "ab", "a")])
def test_fedfv_remembers_only_as_many_rounds_as_it_looks_back(
    tau: int, first: str, then: str
) -> None:
    aggregator = FedFV(FedFVOptions(tau=tau))
    start, contributions = one_tensor([[1.0], [2.0]], start_loss=[1.0, 1.0])
    _, state = aggregate(aggregator, start, contributions)
    assert [n for n in state if n.startswith("last.")] == [f"last.{peer}" for peer in first]
    _, state = aggregator.aggregate(state, start, contributions[:1], ROSTER[:2])
    assert [n for n in state if n.startswith("last.")] == [f"last.{peer}" for peer in then]


def test_who_left_the_run_is_forgotten() -> None:
    aggregator = FedLF()
    start, contributions = one_tensor([[1.0], [2.0]], start_loss=[1.0, 2.0])
    _, state = aggregate(aggregator, start, contributions)
    assert {"last.a", "last.b"} < set(state)
    _, state = aggregator.aggregate(state, start, contributions[:1], ROSTER[:1])
    assert "last.b" not in state


def test_fedlf_opposes_nobody_and_is_as_long_as_the_mean_gradient() -> None:
    losses = [1.0, 2.0, 0.5, 3.0]
    step = step_of(FedLF(), ROWS, start_loss=losses, lr=[0.1] * 4)
    assert (torch.stack(ROWS) @ step).min() > 0.0
    assert step.norm().item() == pytest.approx(MEAN.norm().item())


def test_fedlf_evens_out_losses() -> None:
    # unrelated updates: that of the largest loss is followed further
    rows = list(torch.eye(3, 8, dtype=torch.float64))
    step = step_of(FedLF(), rows, start_loss=[1.0, 2.0, 4.0])
    assert step[0].item() == pytest.approx(step[1].item())
    assert step[1] < step[2]
    equal = step_of(FedLF(), rows, start_loss=[2.0, 2.0, 2.0])
    assert equal[:3].tolist() == pytest.approx([1 / 3] * 3)  # no fairness direction


def test_fedlf_of_contradicting_gradients_stays() -> None:
    opposite = [[1.0, 2.0], [-1.0, -2.0]]
    assert step_of(FedLF(), opposite, start_loss=[1.0, 1.0]).tolist() == [0.0, 0.0]
    third = 2.0 * math.pi / 3.0
    star = [[math.cos(k * third), math.sin(k * third)] for k in range(3)]
    assert step_of(FedLF(), star, start_loss=[1.0, 2.0, 3.0]).norm() < 1e-6


@pytest.mark.parametrize(("size", "worst"), [(1e3, 1e-6), (1e6, 1.0)])
def test_fedlf_takes_no_length_at_which_rounding_opposes_a_gradient(
    size: float, worst: float
) -> None:
    # two of these have a point within 5e-7 of the origin between them; the third lies against it
    # by less than the tolerance of the nearest point, which a stretch to the mean would multiply
    # by 1e6. Halving mends it for short gradients; for long ones the nearest point stays as it is
    rows = vector([[1.0, 5e-7], [-1.0, 5e-7], [1.0, -1.2e-6]]) * size
    step = step_of(FedLF(), list(rows), start_loss=[1.0, 1.0, 1.0])
    assert rows.mean(dim=0).norm() > 0.3 * size
    assert 3e-7 * size < step.norm() < 1e-6 * size
    assert (rows @ step).min() > -worst


def test_fedlf_looks_at_those_away_for_as_many_rounds_as_turns() -> None:
    # peers a and b are there in the first round, one of them in each other: 2 // 1 = 2 rounds
    aggregator = FedLF()
    start, contributions = one_tensor([[1.0, 0.0], [-1.0, 2.0]], start_loss=[1.0, 1.0])
    _, state = aggregate(aggregator, start, contributions)
    away = []
    for _ in range(3):
        made, state = aggregator.aggregate(state, start, contributions[:1], ROSTER[:2])
        away.append(made.notes["away"])
        opposes = float(moved(start, made)["w"] @ vector([-1.0, 2.0])) < 0.0
        assert opposes is (made.notes["away"] == 0.0)
    assert away == [1.0, 1.0, 0.0]


# --- ConFIG --------------------------------------------------------------------------------------


def test_config_stands_at_equal_angles_to_all() -> None:
    step = step_of(ConFig(), ROWS)
    rows = torch.nn.functional.normalize(torch.stack(ROWS))
    torch.testing.assert_close(rows @ step, (rows @ step).mean().expand(4))
    along = step / step.norm()
    assert step.norm().item() == pytest.approx((torch.stack(ROWS) @ along).mean().item())


def test_config_s_own_length_is_the_sum() -> None:
    one, summed = (step_of(ConFig(ConFigOptions(length=how)), ROWS) for how in ("mean", "sum"))
    torch.testing.assert_close(summed, 4.0 * one)


def test_config_by_hand() -> None:
    # along (1, 1) / sqrt 2 the projections are 3 / sqrt 2 and 1 / sqrt 2: their mean is sqrt 2
    assert step_of(ConFig(), [[3.0, 0.0], [0.0, 1.0]]).tolist() == pytest.approx([1.0, 1.0])


def test_config_ignores_who_has_not_moved_but_for_the_mean() -> None:
    step = step_of(ConFig(), [[3.0, 0.0], [0.0, 0.0]])
    assert step.tolist() == pytest.approx([1.5, 0.0])


def test_config_of_exact_opposites_stays_and_tells() -> None:
    start, contributions = one_tensor([[1.0, 2.0], [-2.0, -4.0]])
    made, _ = aggregate(ConFig(), start, contributions)
    assert moved(start, made)["w"].tolist() == [0.0, 0.0]
    assert made.notes["largest_residual"] == pytest.approx(1.0)
    assert made.notes["rank"] == 1.0


# --- with their local halves ---------------------------------------------------------------------

CURVES = [0.5, 1.0, 3.0]  # loss of peer i: curve / 2 (w - centre)^2
CENTRES = [-1.0, 2.0, 0.5]
OPTIMUM = sum(h * c for h, c in zip(CURVES, CENTRES, strict=True)) / sum(CURVES)


def test_feddyn_ends_at_the_minimum_of_the_mean_loss() -> None:
    """With exact local minima; the mean of the centres is elsewhere."""
    alpha, slopes = 0.5, [0.0, 0.0, 0.0]
    start = Start({"w": vector([5.0])})
    aggregator = FedDynServer()
    state = aggregator.init(start)
    for _ in range(200):
        w, contributions = start.params["w"].item(), []
        for i, (h, c) in enumerate(zip(CURVES, CENTRES, strict=True)):
            # argmin of h/2 (x - c)^2 - slope x + alpha/2 (x - w)^2
            x = (h * c + slopes[i] + alpha * w) / (h + alpha)
            slopes[i] -= alpha * (x - w)
            contributions.append(sent(ROSTER[i], {"w": vector([x])}))
        made, state = aggregate(aggregator, start, contributions, state)
        start = made.start
    assert start.params["w"].item() == pytest.approx(OPTIMUM, abs=1e-9)
    mean = sum(CENTRES) / 3
    assert abs(OPTIMUM - mean) > 0.05


def test_feddyn_divides_by_all_peers_of_the_roster() -> None:
    start, contributions = one_tensor([[4.0]])
    aggregator = FedDynServer()
    made, state = aggregator.aggregate(aggregator.init(start), start, contributions, ROSTER[:4])
    assert state["drift"]["w"].tolist() == [1.0]
    assert moved(start, made)["w"].tolist() == [5.0]


def scaffold_round(
    start: Start, own: dict[int, float], present: Sequence[int], steps: int = 3, lr: float = 0.1
) -> list[tuple[int, float, float]]:
    """What each present peer trains from the start, and how its variate changes (option II)."""
    w = start.params["w"].item()
    c = start.extras["w"].item() if start.extras else 0.0
    results = []
    for i in present:
        y = w
        for _ in range(steps):
            y -= lr * (CURVES[i] * (y - CENTRES[i]) - own[i] + c)
        results.append((i, y, -c + (w - y) / (steps * lr)))
    return results


@pytest.mark.parametrize(
    "rounds", [[(0, 1, 2)] * 5, [(0, 1), (2,), (0, 2), (1,), (0, 1, 2)]], ids=["all", "some"]
)
def test_scaffold_s_variate_is_the_mean_of_all_peers(rounds: list[tuple[int, ...]]) -> None:
    aggregator = ScaffoldServer()
    start, own = Start({"w": vector([5.0])}), dict.fromkeys(range(3), 0.0)
    state = aggregator.init(start)
    for present in rounds:
        contributions = []
        for i, y, change in scaffold_round(start, own, present):
            own[i] += change
            extras = {"w": vector([change])}
            contributions.append(sent(ROSTER[i], {"w": vector([y])}, extras=extras))
        made, state = aggregator.aggregate(state, start, contributions, ROSTER[:3])
        start = made.start
        assert start.extras["w"].item() == pytest.approx(sum(own.values()) / 3)
        assert torch.equal(state["variate"]["w"], start.extras["w"])


def test_scaffold_of_one_peer_is_plain_sgd_in_every_round() -> None:
    aggregator = ScaffoldServer()
    start, own, plain = Start({"w": vector([5.0])}), {1: 0.0}, 5.0
    state = aggregator.init(start)
    for _ in range(4):
        [(_, y, change)] = scaffold_round(start, own, [1])
        own[1] += change
        one = sent("b", {"w": vector([y])}, extras={"w": vector([change])})
        made, state = aggregate(aggregator, start, [one], state)
        start = made.start
        for _ in range(3):
            plain -= 0.1 * CURVES[1] * (plain - CENTRES[1])
        assert start.params["w"].item() == pytest.approx(plain)


def test_scaffold_s_step_size_is_on_the_mean_update_alone() -> None:
    start, contributions = one_tensor([[4.0], [8.0]], extras=[{"w": vector([1.0])}] * 2)
    aggregator = AGGREGATORS["scaffold"](ScaffoldServerOptions(lr=0.5))
    made, _ = aggregate(aggregator, start, contributions)
    assert moved(start, made)["w"].tolist() == [3.0]
    assert made.start.extras["w"].tolist() == [1.0]

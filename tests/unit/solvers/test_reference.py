"""FedCONST against a relay's model: what is orthogonal to what, exactly, and when it is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from peer.exchange import read_contribution
from peer.methods import make_method
from peer.options.fields import Value
from peer.options.methods import DescentOptions, FedConstOptions
from peer.options.recipe import expand
from peer.solvers.fedconst import FedConst
from peer.solvers.reference import referenced, with_relay_model
from peer.work import Input, Mix, SnapshotRef, Train
from protocol.errors import ConfigError
from protocol.ids import PeerId
from protocol.params import NO_STATE, Params, State, sub
from protocol.round import Start
from tests.unit.methods.making import contribution, silent, small_model, small_task
from tests.unit.training.classroom import Pupil

HEAVY = DescentOptions(lr=0.1, momentum=0.9, weight_decay=0.1, epochs=3)
AGAINST = FedConstOptions(descent=HEAVY, reference="relay")
RELAY = PeerId("hub")
WEIGHTS = ("body.0.weight", "head.weight")


def point(seed: int) -> Params:
    """A model of random float64 numbers, of the layout of `small_model`."""
    start = small_model(dtype=torch.float64).start.params
    chance = torch.Generator().manual_seed(seed)
    return {n: torch.randn(t.shape, generator=chance, dtype=t.dtype) for n, t in start.items()}


def beside(start: Params, relay: Params | None) -> Start:
    sent = [] if relay is None else [contribution(RELAY, relay)]
    return with_relay_model(Start(start), RELAY, [contribution("a", point(9)), *sent])


def trained(start: Start, state: State = NO_STATE, seed: int = 0) -> tuple[Params, State]:
    task = small_task(small_model(dtype=torch.float64), size=24, seed=seed)
    result, after = FedConst(AGAINST).train(state, start, task, 3, silent)
    return result.params, after


def means(moved: Params, name: str) -> Tensor:
    return moved[name].flatten(1).mean(dim=1).abs().max()


def along(moved: Params, reference: Params, name: str) -> Tensor:
    """The largest inner product of a row's way with that row of the reference."""
    return (moved[name] * reference[name]).flatten(1).sum(dim=1).abs().max()


def test_every_row_moves_off_its_mean_and_the_relays_row_whatever_the_start() -> None:
    start, relay = point(1), point(2)
    end, _ = trained(beside(start, relay))
    moved = sub(end, start)
    for name in WEIGHTS:
        assert means(moved, name) < 1e-12
        assert along(moved, relay, name) < 1e-12
        assert along(moved, start, name) > 1e-3  # it is not the own start that is kept to
        assert moved[name].abs().max() > 1e-3


def test_what_a_relay_makes_of_such_updates_keeps_to_its_own_rows() -> None:
    relay = point(2)
    updates = [
        sub(start, trained(beside(start, relay), seed=seed)[0])
        for seed, start in enumerate((point(1), point(3)))
    ]
    for name in WEIGHTS:
        step = {name: sum((w * u[name] for w, u in zip((0.3, 0.7), updates, strict=True)))}
        assert means(step, name) < 1e-12  # type: ignore[arg-type]
        assert along(step, relay, name) < 1e-12  # type: ignore[arg-type]


def test_the_last_model_that_came_is_kept_to_when_the_relay_says_nothing() -> None:
    first, then, relay = point(1), point(3), point(2)
    _, state = trained(beside(first, relay))
    assert referenced(beside(then, None), state)[0].keys() == relay.keys()
    end, again = trained(beside(then, None), state)
    moved = sub(end, then)
    assert max(along(moved, relay, name) for name in WEIGHTS) < 1e-12
    assert all(torch.equal(again["relay"][n], relay[n]) for n in relay)
    newer = point(4)
    end, _ = trained(beside(then, newer), state)
    assert max(along(sub(end, then), newer, name) for name in WEIGHTS) < 1e-12


def test_before_any_came_and_where_it_is_the_start_it_is_fedconst_bit_for_bit() -> None:
    start = point(1)
    task = small_task(small_model(dtype=torch.float64), size=24, seed=0)
    plain = FedConst(replace(AGAINST, reference="start"))
    expected, _ = plain.train(NO_STATE, Start(start), task, 3, silent)
    for begin in (beside(start, None), beside(start, start)):
        end, _ = trained(begin)
        assert all(torch.equal(end[n], expected.params[n]) for n in end)
    assert trained(beside(start, None))[1] == NO_STATE  # nothing to remember yet


def test_layers_that_the_relay_does_not_have_keep_to_the_start() -> None:
    start, relay = point(1), point(2)
    body = {name: tensor for name, tensor in relay.items() if not name.startswith("head.")}
    end, _ = trained(beside(start, body))
    moved = sub(end, start)
    assert along(moved, relay, "body.0.weight") < 1e-12
    assert along(moved, start, "head.weight") < 1e-12


def test_what_came_shares_no_memory_with_where_it_came_from() -> None:
    relay = point(2)
    start = beside(point(1), relay)
    kept = referenced(start, NO_STATE)[0]
    relay["head.weight"].zero_()
    assert kept["head.weight"].abs().max() > 0.0


@pytest.mark.parametrize(
    ("mixer", "aggregator", "told"),
    [
        ("fedc2i", "none", "an aggregator, which makes one model .* - take aggregator = "),
        ("local", "none", "an aggregator"),
        ("metropolis", "fedavg", "a mixer that takes a relay's model - take mixer = "),
    ],
)
def test_it_is_refused_where_no_relay_is_possible(mixer: str, aggregator: str, told: str) -> None:
    parts = {"mixer": mixer, "aggregator": aggregator, "solver.reference": "relay"}
    with pytest.raises(ConfigError, match=f"fedconst with reference = relay needs {told}"):
        expand("kinfolk", parts)


@pytest.mark.parametrize("preset", ["kinfolk", "fedconst", "fedconst+craft"])
def test_it_is_taken_where_a_relay_is_possible(preset: str) -> None:
    method = make_method(expand(preset, {"solver.reference": "relay"}))
    assert method.recipe.flat()["solver.reference"] == "relay"


def test_a_peer_beside_a_relay_trains_off_the_rows_of_what_the_relay_published(
    tmp_path: Path,
) -> None:
    options: dict[str, Value] = {"solver.reference": "relay", "solver.epochs": 2}
    a, hub = (Pupil(tmp_path, name, method="kinfolk", **options) for name in ("a", "c"))
    model, _ = hub.play(1, [])  # a snapshot like any other; only its sender makes it the relay's
    moved = moved_in_round(a, 1, [model], relay="c")
    theta = read_contribution(model).trained.params
    weights = [name for name, axis in hub.trainer._ready().bench.model.rows.items() if axis == 0]
    assert len(weights) >= 2
    for name in weights:
        scale = theta[name].flatten(1).norm(dim=1).max() * moved[name].flatten(1).norm(dim=1).max()
        assert scale > 0.0
        assert along(moved, theta, name) < 1e-5 * scale  # float32


def moved_in_round(pupil: Pupil, number: int, inputs: list[SnapshotRef], relay: str) -> Params:
    """Where training led from the mix."""
    parts = tuple(Input(ref, 1.0) for ref in inputs)
    pupil.trainer.mix(Mix(number, len(inputs), parts, (), relay))
    start = pupil.trainer._ready().start.params
    pupil.trainer.train(Train(number), lambda _done, _planned: None)
    return sub(pupil.trainer._ready().trained.params, start)

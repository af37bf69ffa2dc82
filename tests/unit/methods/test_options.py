"""Methods as options: presets completed, values converted, mistakes explained, no torch needed."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from peer import methods
from peer.options.fields import Value, build, rules, values
from peer.options.methods import FedC2IOptions, FedConstOptions
from peer.options.recipe import PRESETS, SLOTS, defaults, expand, read
from protocol.errors import ConfigError

KINFOLK = {
    "mixer": "fedc2i",
    "mixer.gamma": 5.0,
    "mixer.level": "both",
    "mixer.absent": "formula",
    "mixer.include_self": True,
    "mixer.memory": 0.0,
    "solver": "fedconst",
    "solver.lr": 0.05,
    "solver.momentum": 0.0,
    "solver.nesterov": False,
    "solver.weight_decay": 0.0,
    "solver.epochs": 1,
    "solver.dp_noise": 0.0,
    "solver.dp_clip": 1.0,
    "solver.dp_delta": 1e-5,
    "solver.dp_chance": "secret",
    "solver.mode": "joint",
    "solver.reference": "start",
    "solver.center_init": True,
    "solver.optimiser": "sgd",
    "aggregator": "craft",
    "aggregator.groups": "module",
    "aggregator.tol": 1e-6,
    "aggregator.single": "solve",
    "aggregator.length": "paper",
    "aggregator.policy": "lstsq",
    "aggregator.max_norm": 10.0,
    "aggregator.lr": 0.1,
    "aggregator.schedule": "constant",
    "aggregator.decay_rounds": 100,
    "aggregator.decay": 0.1,
    "aggregator.project": "none",
    "mix.buffers": "average",
    "mix.probe_batches": 1,
    "train.batch_size": 32,
    "train.precision": "fp32",
    "train.holdout": 0.1,
    "serve.never_worse": True,
    "serve.twin": True,
}


def test_the_default_preset_is_this_method() -> None:
    assert defaults("kinfolk") == KINFOLK


@pytest.mark.parametrize("preset", PRESETS)
def test_a_completed_method_is_complete(preset: str) -> None:
    flat = defaults(preset)
    assert read(flat).flat() == flat
    assert all(type(value) in {str, int, float, bool} for value in flat.values())


def test_what_is_typed_wins_and_is_converted() -> None:
    typed: dict[str, Value] = {
        "mixer.gamma": "3",
        "solver.lr": 1,
        "solver.epochs": "2",
        "mixer.include_self": "False",
        "mix.buffers": "local",
    }
    flat = expand("kinfolk", typed)
    changed = {key: value for key, value in flat.items() if value != KINFOLK[key]}
    assert changed == {
        "mixer.gamma": 3.0,
        "solver.lr": 1.0,
        "solver.epochs": 2,
        "mixer.include_self": False,
        "mix.buffers": "local",
    }
    assert type(flat["solver.lr"]) is float


def test_a_slot_of_another_method_takes_its_own_defaults() -> None:
    flat = expand("kinfolk", {"solver": "sgd", "solver.momentum": 0.9})
    assert flat["solver"] == "sgd"
    assert flat["solver.momentum"] == 0.9
    assert "solver.mode" not in flat


@pytest.mark.parametrize(
    ("preset", "typed", "told"),
    [
        ("kinfold", {}, "there is no preset 'kinfold' - did you mean kinfolk"),
        ("fancy", {}, "there are: kinfolk, fedc2i, gossip"),
        ("kinfolk", {"mixer": "fedavgm"}, "there is no mixer 'fedavgm' - did you mean fedavg?"),
        ("kinfolk", {"mixer.gama": 1}, "no option 'mixer.gama' here - did you mean mixer.gamma?"),
        ("gossip", {"mixer.gamma": 1}, "it belongs to mixer = fedc2i"),
        ("gossip", {"colour": "red"}, "there are: solver.lr, solver.momentum"),
        (
            "kinfolk",
            {"mixer.gamma": -1},
            r"mixer.gamma = -1 cannot be used: it must be a number in",
        ),
        (
            "kinfolk",
            {"mixer.gamma": "much"},
            r"= much cannot be used: it must be a number in \[0, ",
        ),
        ("kinfolk", {"mixer.gamma": "nan"}, "cannot be used"),
        ("kinfolk", {"solver.lr": "inf"}, "cannot be used"),
        ("kinfolk", {"solver.epochs": 1.5}, r"it must be a whole number in \[1, 100000\]"),
        ("kinfolk", {"solver.epochs": True}, r"it must be a whole number in \[1, 100000\]"),
        ("kinfolk", {"solver.center_init": 1}, "it must be true | false"),
        ("kinfolk", {"solver.center_init": "yes"}, "it must be true | false"),
        ("kinfolk", {"train.precision": "fp16"}, "it must be one of fp32 | bf16"),
        ("kinfolk", {"solver.nesterov": True}, "nesterov = true needs momentum > 0"),
    ],
)
def test_a_mistake_is_explained(preset: str, typed: dict[str, Value], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        expand(preset, typed)


def test_a_method_without_a_mixer_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="no mixer is named - choose one of: fedavg, fedc2i"):
        read({"solver": "sgd", "aggregator": "none"})


def test_groups_of_options_lie_flat_and_build_is_the_inverse_of_values() -> None:
    flat = values(FedConstOptions())
    assert list(flat) == list(rules(FedConstOptions))
    assert flat["lr"] == 0.05
    assert build(FedConstOptions, {**flat, "lr": 0.5}).descent.lr == 0.5
    assert build(FedConstOptions, {}) == FedConstOptions()


def test_options_are_refused_at_construction_too() -> None:
    with pytest.raises(ConfigError, match="gamma = nan cannot be used"):
        FedC2IOptions(gamma=float("nan"))


def test_every_declared_method_exists_and_takes_its_options() -> None:
    built: Mapping[str, Mapping[str, Callable[..., Any]]] = {
        "mixer": methods.MIXERS,
        "solver": methods.SOLVERS,
        "aggregator": methods.AGGREGATORS,
    }
    for slot, entries in SLOTS.items():
        assert sorted(built[slot]) == sorted(name for name in entries if name != "none")
        for name, make in built[slot].items():
            options = entries[name].options()
            made = make(options)
            if name != "replicated":  # it is its aggregator
                assert made.options == options


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_made(preset: str) -> None:
    method = methods.make_method(defaults(preset))
    assert method.recipe.flat() == defaults(preset)
    assert (method.aggregator is None) == (method.recipe.aggregator.name == "none")


def test_a_node_reads_methods_without_torch() -> None:
    code = (
        "import sys; from peer.options.recipe import expand; import peer.options.models; "
        "expand('kinfolk', {}); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

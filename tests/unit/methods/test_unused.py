"""Lines of a manifest that nothing would read: refused where they are a mistake, else told."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from peer.experiment import load_experiment
from peer.launch.stage import tell_unused
from peer.options.fields import Rule, Value, rules
from peer.options.methods import TrainOptions
from peer.options.recipe import COMMON, PRESETS, SLOTS
from peer.pace import Pace
from peer.settings import Settings, complete, wished
from peer.share import ShareOptions
from protocol.errors import ConfigError

MISTAKES: list[tuple[dict[str, Value], str]] = [
    (
        {"share.topk": 0.05},
        "share.topk = 0.05 has no use with share.codec = fp32: it is read only with "
        "share.codec = topk - set share.codec = topk, or leave share.topk out; its default, 0.1, "
        "is always allowed",
    ),
    ({"share.codec": "delta", "share.topk": 0.05}, "with share.codec = delta"),
    ({"method": "gossip", "solver.dp_clip": 2.0}, "only with solver.dp_noise in (0, inf)"),
    ({"method": "gossip", "solver.dp_delta": 1e-6}, "with solver.dp_noise = 0.0"),
    ({"method": "gossip", "solver.dp_chance": "seeded"}, "solver.dp_chance = seeded has no use"),
    ({"method": "craft", "aggregator.decay": 0.5}, "only with aggregator.schedule = step"),
    (
        {"method": "craft", "aggregator.schedule": "inverse-sqrt", "aggregator.decay": 0.5},
        "with aggregator.schedule = inverse-sqrt",
    ),
    (
        {"method": "craft", "aggregator.decay_rounds": 10},
        "only with aggregator.schedule = inverse-sqrt or step",
    ),
    (
        {"method": "craft", "aggregator.length": "mean-norm", "aggregator.max_norm": 5.0},
        "only with aggregator.length = paper",
    ),
    (
        {"mixer.level": "client", "mixer.absent": "client"},
        "mixer.absent = client has no use with mixer.level = client: it is read only with "
        "mixer.level = both or class",
    ),
]


@pytest.mark.parametrize(("explicit", "told"), MISTAKES)
def test_what_a_word_of_its_own_table_leaves_without_use_is_refused(
    explicit: dict[str, Value], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        complete(explicit)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "explicit",
    [
        {"share.topk": 0.1},  # a default asks for nothing
        {"share.codec": "topk", "share.topk": 0.05},
        {"share.codec": "topk", "share.topk": "0.05"},
        {"method": "gossip", "solver.dp_noise": 1.0, "solver.dp_clip": 2.0},
        {"method": "craft", "aggregator.schedule": "step", "aggregator.decay": 0.5},
        {"method": "craft", "aggregator.schedule": "inverse-sqrt", "aggregator.decay_rounds": 10},
        {"mixer.level": "class", "mixer.absent": "client", "mixer.memory": 0.5},
        {"method": "gossip", "serve.twin": False},  # no twin was asked for, and there is none
    ],
)
def test_what_is_read_and_what_is_a_default_is_neither_refused_nor_told(
    explicit: dict[str, Value],
) -> None:
    assert Settings.read(complete(explicit)).unused == ()


@pytest.mark.parametrize(
    "explicit",
    [
        {"share.topk": 0.05},
        {"method": "gossip", "solver.dp_clip": 2.0},
        {"method": "craft", "aggregator.decay": 0.5},
        {"share.codec": "topk", "share.topk": 0.05},
    ],
)
def test_a_peer_may_say_the_half_of_what_the_run_says_the_other_half_of(
    explicit: dict[str, Value],
) -> None:
    assert wished(explicit) == explicit


@pytest.mark.parametrize(
    ("explicit", "told"),
    [
        ({"share.codec": "fp32", "share.topk": 0.05}, "no use with share.codec = fp32"),
        ({"method": "gossip", "solver.dp_noise": 0, "solver.dp_clip": 2.0}, "dp_noise = 0.0"),
        ({"share.topk": 0.9}, "share.topk = 0.9 cannot be used"),
    ],
)
def test_a_peer_that_says_both_halves_is_refused_at_once(
    explicit: dict[str, Value], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        wished(explicit)


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_asks_for_anything_in_vain(preset: str) -> None:
    assert Settings.read(complete({"method": preset})).unused == ()


@pytest.mark.parametrize(
    ("explicit", "told"),
    [
        # numbers that a person has set to their end
        (
            {"pace.max_staleness": 0, "pace.half_life": 2.0},
            ["pace.half_life = 2.0 has no use with pace.max_staleness = 0"],
        ),
        (
            {"pace.quorum": 1.0, "pace.grace_s": 3.0},
            ["pace.grace_s = 3.0 has no use with pace.quorum = 1.0"],
        ),
        (
            {"method": "moon", "solver.mu": 0.0, "solver.temperature": 0.1},
            ["solver.temperature = 0.1 has no use with solver.mu = 0.0"],
        ),
        (
            {"method": "fedcalm", "mixer.cap": 0.0, "mixer.margin": 0.1},
            ["mixer.margin = 0.1 has no use with mixer.cap = 0.0"],
        ),
        (
            {"mixer.gamma": 0.0, "mixer.memory": 0.5},
            ["mixer.memory = 0.5 has no use with mixer.gamma = 0.0"],
        ),
        # tables that hold for every method
        (
            {"method": "fedavg", "pace.max_staleness": 5, "pace.half_life": 2.0},
            [
                "pace.half_life = 2.0 has no use with mixer = replicated: what is late has no part "
                "in one common model",
                "pace.max_staleness = 5 has no use with mixer = replicated: what is late has no "
                "part in one common model",
            ],
        ),
        (
            {"method": "gossip", "mix.probe_batches": 4},
            ["mix.probe_batches = 4 has no use with mixer = fedavg: it measures no influence"],
        ),
        (
            {"method": "local", "run.topology": "ring", "share.codec": "int8", "pace.drain_s": 5.0},
            [
                "pace.drain_s = 5.0 has no use with mixer = local: nothing is exchanged",
                "run.topology = ring has no use with mixer = local: nothing is exchanged",
                "share.codec = int8 has no use with mixer = local: nothing is exchanged",
            ],
        ),
        (
            {"method": "fedavg", "mixer": "relay", "run.topology": "ring"},
            ["run.topology = ring has no use with mixer = relay: peers ask the relay alone"],
        ),
        (
            {"mix.buffers": "local", "model": "cnn"},
            [
                "mix.buffers = local has no use with model = cnn without BatchNorm "
                "(model.norm = batch)"
            ],
        ),
        (
            {"mix.buffers": "local"},
            ["mix.buffers = local has no use with model = lenet5, which has no BatchNorm"],
        ),
    ],
)
def test_what_another_table_leaves_without_use_is_told_and_goes_on(
    explicit: dict[str, Value], told: list[str]
) -> None:
    assert list(Settings.read(complete(explicit)).unused) == told


def test_what_each_of_them_asks_for_is_read_where_it_has_a_use() -> None:
    read: list[dict[str, Value]] = [
        {"pace.max_staleness": 2, "pace.half_life": 2.0, "pace.quorum": 0.6, "pace.grace_s": 3.0},
        {"method": "fedc2i", "mix.probe_batches": 4, "run.topology": "ring"},
        {"mix.buffers": "local", "model": "cnn", "model.norm": "batch"},
        {"mix.buffers": "local", "model": "own.module:make"},  # nobody knows what it has
    ]
    for explicit in read:
        assert Settings.read(complete(explicit)).unused == ()


def test_every_line_that_is_read_with_another_names_one_of_its_table() -> None:
    tables = [COMMON[name] for name in COMMON] + [ShareOptions, Pace, TrainOptions]
    tables += [entry.options for entries in SLOTS.values() for entry in entries.values()]
    found = 0
    for table in tables:
        declared = rules(table)
        for rule in declared.values():
            if rule.only is not None:
                other: Rule = declared[rule.only.option]
                assert isinstance(rule.only.holds(other.default), bool)
                found += 1
    assert found >= 10


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[aggregator]\nlr = 0.5\n",
            [
                "aggregator.lr = 0.5 has no use with mixer = fedc2i without a [relay]: only a "
                "relay aggregates"
            ],
        ),
        ("[aggregator]\nlr = 0.5\n[relay]\n", []),
        ('[aggregator]\nname = "craft"\nlr = 0.1\n', []),  # what the preset has
        ('[method]\nname = "craft"\n[aggregator]\nlr = 0.5\n', []),  # each peer aggregates
        (
            '[solver]\nreference = "relay"\n',
            ["solver.reference = relay has no use without a [relay]: rows are held to the start's"],
        ),
        (
            '[method]\nname = "fedavg"\n[mixer]\nname = "relay"\n',
            [
                "mixer = relay has nobody to ask without a [relay]: every round is a local one",
            ],
        ),
    ],
)
def test_what_only_a_relay_would_use_is_told_where_the_file_has_none(
    tmp_path: Path, text: str, told: list[str]
) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(f'{text}[data]\nshards = "shards"\n')
    assert list(load_experiment(path).unused) == told


def test_a_launch_and_a_simulation_tell_it_in_so_many_words(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(
        '[method]\nname = "gossip"\n[mix]\nprobe_batches = 4\n[data]\nshards = "shards"\n'
    )
    text = StringIO()
    tell_unused(load_experiment(path), Console(file=text, width=40))
    assert text.getvalue() == (
        "Note: mix.probe_batches = 4 has no use with mixer = fedavg: it measures no influence\n"
    )


def test_a_mistake_in_a_file_is_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text('[share]\ntopk = 0.2\n[data]\nshards = "shards"\n')
    with pytest.raises(ConfigError, match=r"tiny\.toml: share\.topk = 0\.2 has no use with"):
        load_experiment(path)

"""Which parts of a method fit together, and with which topology; what does not is refused."""

from pathlib import Path

import pytest

from peer.options.entry import Need
from peer.options.fields import Value
from peer.options.recipe import PRESETS, SLOTS, expand, givers_of, read
from peer.settings import Settings, complete, typed, wished
from protocol.errors import ConfigError
from protocol.manifest import Manifest


@pytest.mark.parametrize(
    ("preset", "typed", "told"),
    [
        ("kinfolk", {"solver": "ditto"}, "ditto needs one start point .* - take mixer = relay or"),
        ("gossip", {"solver": "scaffold"}, "scaffold needs one start point"),
        ("kinfolk", {"aggregator": "afl"}, "afl needs one start point .* - take mixer = relay or"),
        ("fedavg", {"aggregator": "scaffold"}, "control variates .* - take solver = scaffold$"),
        ("fedavg", {"solver": "scaffold"}, "control variates - take aggregator = scaffold$"),
        ("fedavg", {"aggregator": "feddyn"}, "local half of FedDyn - take solver = feddyn$"),
        ("fedavg", {"solver": "feddyn"}, "common half of FedDyn - take aggregator = feddyn$"),
        ("local", {"aggregator": "craft"}, "craft needs a mixer that takes a relay's model"),
        ("fedic", {"aggregator": "craft"}, "craft needs a mixer that takes a relay's model"),
        ("local", {"mixer": "relay"}, "relay needs an aggregator, .* - take aggregator = afl, con"),
        ("local", {"mixer": "replicated"}, "replicated needs an aggregator"),
        (
            "craft",
            {"aggregator.project": "fedconst"},
            "craft with project = fedconst needs training .* - take solver = fedconst$",
        ),
        (
            "kinfolk",
            {"aggregator.project": "fedconst"},
            "craft with project = fedconst needs one start point",
        ),
        (
            "kinfolk",
            {"solver.dp_noise": 1.0},
            "mixer = fedc2i needs a look at the training data that no noise hides, which solver = "
            "fedconst with dp_noise = 1.0 keeps back - take mixer = fedavg, fedrep, fedrod or .*; ",
        ),
        (
            "qfedavg",
            {"solver.dp_noise": 0.5},
            "aggregator = qfedavg needs the loss of the start .* back - take .* = config, craft, ",
        ),
        ("fedavg", {"solver": "moon", "solver.dp_noise": 1.0}, "belongs to solver = .*sgd"),
        ("fedavg", {"mix.buffers": "local"}, "one model for all, .* - take mix.buffers = average$"),
    ],
)
def test_a_pair_that_makes_no_sense_is_refused(
    preset: str, typed: dict[str, Value], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as refusal:
        expand(preset, typed)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("preset", "typed"),
    [
        ("kinfolk", {"aggregator": "fedavgm"}),  # takes updates, whatever they started from
        ("kinfolk", {"aggregator": "none"}),
        ("gossip", {"solver": "fedprox"}),
        ("gossip", {"solver.dp_noise": 1.0}),
        ("fedconst+craft", {"solver.dp_noise": 1.0}),
        ("fedrep", {"aggregator": "craft"}),
        ("scaffold", {"mixer": "relay"}),
        ("ditto", {"aggregator": "config"}),
        ("fedconst+craft", {"mixer": "relay"}),
    ],
)
def test_a_pair_that_makes_sense_is_taken(preset: str, typed: dict[str, Value]) -> None:
    flat = expand(preset, typed)
    assert read(flat).flat() == flat


@pytest.mark.parametrize("topology", ["ring", "star", "k-regular:2"])
def test_every_peer_can_replicate_only_what_every_peer_receives(topology: str) -> None:
    typed: dict[str, Value] = {"method": "fedavg", "run.topology": topology}
    with pytest.raises(ConfigError, match=rf"run.topology = {topology} does not .* mixer = relay,"):
        complete(typed)
    complete({**typed, "mixer": "relay"})
    complete({**typed, "method": "kinfolk"})


def test_needs_of_one_value_of_an_option_hold_with_that_value_alone() -> None:
    typed: dict[str, Value] = {"solver": "fedconst", "aggregator.project": "fedconst"}
    assert Need.CONSTRAINED_ROWS in read(expand("craft", typed)).needs
    assert Need.CONSTRAINED_ROWS not in read(expand("craft", {"solver": "fedconst"})).needs
    for entries in SLOTS.values():
        for entry in entries.values():
            for (option, value), needs in entry.when.items():
                assert getattr(entry.options(**{option: value}), option) == value
                assert needs


def test_what_is_typed_for_a_run_that_is_not_known_yet_is_converted_alone() -> None:
    relay: dict[str, Value] = {"aggregator": "craft", "aggregator.project": "fedconst"}
    assert typed(relay) == relay
    assert typed({"aggregator": "afl", "aggregator.lr": "2"}) == {
        "aggregator": "afl",
        "aggregator.lr": 2.0,
    }
    assert typed({"method": "fedavgm", "aggregator.momentum": "0.5", "run.rounds": "3"}) == {
        "method": "fedavgm",
        "aggregator.momentum": 0.5,
        "run.rounds": 3,
    }


def test_a_file_of_links_is_wished_for_as_the_run_will_have_it(tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.write_text("b c\na b\n")
    explicit: dict[str, Value] = {"run.topology": f"file:{links}"}
    for read_it in (typed, wished):
        assert read_it({**explicit, "method": "gossip"})["run.topology"] == "edges:a b,b c"
    with pytest.raises(ConfigError, match="no topology 'rink'"):
        typed({"run.topology": "rink"})


@pytest.mark.parametrize(
    ("explicit", "told"),
    [
        ({"aggregator": "crfat"}, "no aggregator 'crfat' - did you mean craft?"),
        ({"aggregator": "craft", "aggregator.q": 1}, "it belongs to aggregator = qfedavg"),
        ({"aggregator": "craft", "aggregator.lr": 0}, "aggregator.lr = 0 cannot be used"),
        ({"method": "crfat"}, "no method 'crfat' - did you mean craft?"),
        ({"run.round": 3}, "no option 'run.round' - close to it: run.rounds"),
    ],
)
def test_what_is_typed_wrong_is_told_before_a_run_hears_of_it(
    explicit: dict[str, Value], told: str
) -> None:
    for read_it in (typed, complete):
        with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
            read_it(explicit)


def test_what_nobody_gives_is_no_reason_to_refuse() -> None:
    assert givers_of(Need.LR) == ""
    assert givers_of(Need.COMMON_START) == "mixer = relay or replicated"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_fits_a_manifest(preset: str) -> None:
    flat = complete({"method": preset, "data.input": "3x224x224", "data.classes": 1000})
    manifest = Manifest(flat)  # refuses what is too much for a message
    assert Settings.read(manifest).flat == flat


HOSTILE: list[Value] = [
    "abc",
    "3x5000x28",
    10_001,
    "9" * 400,
    1e308,
    -1,
    True,
    2.5,
    "\u0663x3x3",
    "0x1x1",
    "1x1",
]


@pytest.mark.parametrize("key", ["data.input", "data.classes"])
@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_data_that_no_model_could_take_are_refused_whoever_settled_them(
    key: str, value: Value
) -> None:
    with pytest.raises(ConfigError, match=f"{key} = .* cannot be used: it must be"):
        Settings.read({**complete({}), key: value})


def test_a_run_whose_manifest_lacks_a_line_is_refused_and_no_traceback() -> None:
    whole = complete({"method": "craft"})
    needed = set()
    for key in whole:
        try:
            Settings.read(Manifest({k: v for k, v in whole.items() if k != key}))
        except ConfigError as error:
            assert key in str(error) or key in SLOTS, key
            needed.add(key)
    assert needed == {"method", "model", "run.topology", *SLOTS}


@pytest.mark.parametrize(
    ("explicit", "told"),
    [
        ({"method": "gossip", "solver.dp_noise": 1e-200}, "dp_noise = 1e-200 cannot be used"),
        ({"method": "gossip", "solver.dp_noise": 9e-7}, "take 1e-06 or more, where 1 is usual"),
        ({"method": "gossip", "solver.weight_decay": 1e300}, r"weight_decay = 1e\+300 cannot be"),
        ({"mixer.gamma": 1e300}, "mixer.gamma = 1e\\+300 cannot be used"),
        ({"pace.bound_s": 1e300}, "pace.bound_s = 1e\\+300 cannot be used"),
        ({"pace.drain_s": 31_536_001}, r"must be a number in \[0, 31536000\]"),
    ],
)
def test_numbers_that_arithmetic_or_a_clock_cannot_take_are_refused(
    explicit: dict[str, Value], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        complete(explicit)

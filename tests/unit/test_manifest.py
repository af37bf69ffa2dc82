import pytest

from protocol.errors import ConfigError
from protocol.manifest import (
    MAX_OPTIONS_BYTES,
    Manifest,
    conflicts,
    differences,
    parse_assignment,
)
from protocol.wire.codec import COORDINATOR
from protocol.wire.messages import MAX_REQUEST_BYTES, Join, Option, Settle


def test_tables_become_dotted_lines_and_a_name_is_the_tables_own_line() -> None:
    tables = {
        "method": "kinfolk",
        "run": {"name": "demo", "founders": 4, "rounds": 30},
        "mixer": {"name": "fedc2i", "gamma": 5.0},
        "model": {"head": {"bias": True}},
        "launch": {"hosts": ["a", "b"]},  # not of the run
        "fault": [{"at_round": 3}],
    }
    assert dict(Manifest.from_tables(tables)) == {
        "method": "kinfolk",
        "mixer": "fedc2i",
        "mixer.gamma": 5.0,
        "model.head.bias": True,
        "run.rounds": 30,
    }


def test_the_aggregator_may_be_named_at_the_relay() -> None:
    tables = {"relay": {"name": "hub", "aggregator": "craft"}, "aggregator": {"lr": 0.5}}
    assert dict(Manifest.from_tables(tables)) == {"aggregator": "craft", "aggregator.lr": 0.5}
    with pytest.raises(ConfigError, match="name different aggregators"):
        Manifest.from_tables({**tables, "aggregator": {"name": "fedavg"}})


def test_the_order_is_that_of_the_keys_however_it_was_written() -> None:
    one, other = Manifest({"b": 1, "a": 2}), Manifest({"a": 2, "b": 1})
    assert list(one) == ["a", "b"]
    assert one == other
    assert one.options() == other.options() == (Option("a", 2), Option("b", 1))


def test_options_are_read_back() -> None:
    manifest = Manifest({"a": True, "b": 1, "c": 1.5, "d": "x"})
    assert Manifest.from_options(manifest.options()) == manifest


def test_a_line_may_stand_once() -> None:
    with pytest.raises(ConfigError, match="a stands twice"):
        Manifest.from_options((Option("a", 1), Option("a", 1)))


def test_lines_over_lines_win() -> None:
    assert Manifest({"a": 1}).over({"a": 2, "b": 3}) == {"a": 1, "b": 3}


def test_what_was_asked_and_is_otherwise_is_named_line_by_line() -> None:
    run = Manifest({"a": True, "b": 1, "c": "x", "d": 0.05})
    assert differences({"d": 0.1, "e": 3, "a": False, "c": "x"}, run) == [
        "a: you asked for false, the run has true",
        "d: you asked for 0.1, the run has 0.05",
        "e: you asked for 3, the run has no such option",
    ]


def test_while_nothing_is_settled_only_fixed_lines_can_differ() -> None:
    assert conflicts({"d": 0.1, "e": 3}, {"d": 0.05}) == ["d: you asked for 0.1, the run has 0.05"]


def test_one_is_one_point_nothing_but_neither_is_true_nor_text() -> None:
    assert differences({"a": 1}, {"a": 1.0}) == []
    assert differences({"a": 1}, {"a": True}) == ["a: you asked for 1, the run has true"]
    assert differences({"a": "1"}, {"a": 1}) == ["a: you asked for 1, the run has 1"]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("k=true", True),
        ("k=false", False),
        ("k=3", 3),
        ("k = -2", -2),
        ("k=0.05", 0.05),
        ("k=1e-3", 0.001),
        ("k=full", "full"),
        ("k=k-regular:4", "k-regular:4"),
        ("k='3'", "3"),
        ('k="true"', "true"),
        ("k=", ""),
        ("k=a=b", "a=b"),
    ],
)
def test_an_assignment_is_read_as_typed(typed: str, value: object) -> None:
    key, read = parse_assignment(typed)
    assert (key, read, type(read)) == ("k", value, type(value))


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ("k", "'k' is not KEY=VALUE"),
        ("=3", "'=3' is not KEY=VALUE"),
        ("a b=3", "option 'a b' cannot be used"),
        ("k.=3", r"option 'k\.' cannot be used"),
        ("x" * 65 + "=3", "at most 64 characters"),
        ("k=nan", "k = nan is not a finite number"),
        ("k=9223372036854775808", "does not fit 64 bits"),
        ("k=" + "x" * 501, "k has 501 characters, at most 500 fit"),
    ],
)
def test_an_assignment_that_cannot_stand_is_told(typed: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        parse_assignment(typed)


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ({"run": {"a.b": 1, "a": {"b": 2}}}, r"run\.a\.b stands twice"),
        ({"solver": {"lr": [1]}}, r"solver\.lr is a list"),
        ({"solver": {"lr": float("inf")}}, r"solver\.lr = inf is not a finite number"),
        ({"solver": {"name": "sgd"}, "run": {"x y": 1}}, r"option 'run\.x y' cannot be used"),
    ],
)
def test_a_table_that_cannot_stand_is_told(tables: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        Manifest.from_tables(tables)


def test_too_many_lines_are_told() -> None:
    with pytest.raises(ConfigError, match="97 options, at most 96 fit a manifest"):
        Manifest({f"k{number}": 1 for number in range(97)})


def test_too_long_a_manifest_is_told_with_its_longest_line() -> None:
    lines = {f"k{number}": "x" * 400 for number in range(9)} | {"the.long.one": "x" * 500}
    with pytest.raises(ConfigError, match=r"the longest is the\.long\.one with 519"):
        Manifest(lines)


def test_the_longest_manifest_fits_every_message_that_holds_one() -> None:
    lines: dict[str, bool | int | float | str] = {"t": "é" * 400}
    while True:
        try:
            manifest = Manifest({**lines, f"k{len(lines)}": 0.5 if len(lines) % 2 else "y" * 60})
        except ConfigError:
            break
        lines = dict(manifest)
    options = Manifest(lines).options()
    join = Join(
        version=65535,
        token=bytes(16),
        name="n" * 64,
        role="r" * 16,
        instance=bytes(8),
        address="a" * 128,
        sign_key=bytes(32),
        wishes=options,
    )
    sizes = [len(COORDINATOR.encode(message)) for message in (Settle(options), join)]
    assert sizes[0] <= MAX_OPTIONS_BYTES
    assert sizes[1] <= MAX_REQUEST_BYTES

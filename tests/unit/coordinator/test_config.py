from pathlib import Path
from typing import Any

import pytest

from coordinator.config import Config, default_run_name, new_book, read_config, resume
from protocol.errors import AddressError, ConfigError
from protocol.manifest import Manifest
from protocol.transport.addresses import HostPort


def config(**typed: Any) -> Config:
    options: dict[str, Any] = {
        "bind": None,
        "advertise": None,
        "founders": None,
        "relays": None,
        "run_name": None,
        "experiment": None,
        "assignments": (),
        "lease_s": 15.0,
    }
    return read_config(**(options | typed))


def test_an_address_without_a_port_has_the_default_one() -> None:
    assert config(bind="127.0.0.1").bind == HostPort("127.0.0.1", 7733)
    assert config(bind="10.0.0.5:0").bind == HostPort("10.0.0.5", 0)


def test_what_is_typed_stands_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        'method = "gossip"\n[run]\nname = "x"\nfounders = 3\nrounds = 5\n'
        '[solver]\nname = "sgd"\nlr = 0.1\n[launch]\nhosts = ["a"]\n'
    )
    read = config(experiment=file, founders=4, assignments=("solver.lr=0.05",))
    assert (read.run_name, read.founders) == ("x", 4)
    assert read.options == {
        "method": "gossip",
        "run.rounds": 5,
        "solver": "sgd",
        "solver.lr": 0.05,
    }


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ({"founders": 0}, "founders must be in \\[1, 2048\\], got 0"),
        ({"founders": 5000}, "got 5000"),
        ({"lease_s": 0.5}, "the lease must be in \\[1, 3600\\] s, got 0.5"),
        ({"lease_s": float("nan")}, "got nan"),
        ({"run_name": "a/b"}, "name 'a/b' cannot be used"),
        ({"assignments": ("solver.lr",)}, "'solver.lr' is not KEY=VALUE"),
        ({"experiment": Path("/nowhere/x.toml")}, "cannot be read: No such file"),
    ],
)
def test_what_is_out_of_bounds_is_told_with_the_bound(typed: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config(**typed)


def test_a_port_that_is_no_port_is_told() -> None:
    with pytest.raises(AddressError, match="has no usable port"):
        config(bind="10.0.0.5:70000")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[run", "is not TOML"),
        ("[run]\nfounders = true", "run.founders = True must be a int"),
        ("run = 3", "run must be a table"),
        ("[solver]\nlr = [1]", "solver.lr is a list"),
        ("[solver]\nlr = nan", "solver.lr = nan is not a finite number"),
        ('[relay]\naggregator = ["craft"]', r"relay\] aggregator = \['craft'\]: it must be a name"),
        ("[relay]\naggregator = nan", "aggregator = nan: it must be a name"),
        ("[run]\nfounders = 0x" + "f" * 5000, "run.founders is a whole number that does not fit"),
        ("solver." + "a." * 3000 + "b = 1", "nest deeper than 16"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ConfigError, match=fault):
        config(experiment=tmp_path / "x.toml")


def test_a_run_without_a_name_is_named_after_its_second() -> None:
    assert default_run_name(0.0) == "run-19700101-000000"


def test_a_new_run_waits_for_two_unless_told() -> None:
    assert new_book(Config(), run_name="x").founders == 2
    assert new_book(Config(founders=5), run_name="x").founders == 5


def test_a_run_is_resumed_only_as_it_was_started() -> None:
    book = new_book(Config(founders=3, options=Manifest({"solver.lr": 0.1})), run_name="x")
    resume(book, Config(founders=3))
    with pytest.raises(ConfigError, match=r"founders: you asked for 4, the run has 3; solver\.lr"):
        resume(book, Config(founders=4, options=Manifest({"solver.lr": 0.2})))


def test_relays_are_none_unless_asked_for_and_stay_as_many() -> None:
    assert new_book(Config(), run_name="x").relays == 0
    book = new_book(Config(relays=1), run_name="x")
    resume(book, Config())
    with pytest.raises(ConfigError, match="relays: you asked for 2, the run has 1"):
        resume(book, Config(relays=2))
    with pytest.raises(ConfigError, match=r"relays must be in \[0, .*got -1"):
        config(relays=-1)


def test_a_run_that_is_not_settled_can_be_pinned_further_when_it_is_resumed() -> None:
    book = new_book(Config(options=Manifest({"solver.lr": 0.1})), run_name="x")
    resume(book, Config(options=Manifest({"run.seed": 7})))
    assert book.options == {"solver.lr": 0.1, "run.seed": 7}
    book.settled = True
    with pytest.raises(ConfigError, match=r"run\.rounds: you asked for 3, the run has no such"):
        resume(book, Config(options=Manifest({"run.rounds": 3})))

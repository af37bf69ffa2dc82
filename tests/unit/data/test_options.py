"""What may be asked of `peer data make`, in a [data] table as on the command line."""

from pathlib import Path

import pytest

from peer.data.options import MakeOptions
from protocol.errors import ConfigError


def test_a_table_is_read_with_its_paths_relative_to_its_file() -> None:
    options = MakeOptions.from_mapping(
        {"sources": "digits", "peers": 5, "usps": "u.npz", "domains": {"own": "/abs/o.npz"}},
        base=Path("/exp"),
    )
    assert options.digit_sources == ("mnist", "mnistm", "optdigits", "synthdigits")
    assert options.files == {"own": Path("/abs/o.npz"), "usps": Path("/exp/u.npz")}
    assert (options.peers, options.partition, options.samples_per_class) == (5, "domain", None)


def test_a_table_written_and_read_is_the_same() -> None:
    options = MakeOptions(
        sources=("mnist",),
        domains={"own": Path("o.npz")},
        datasets=("SVHN",),
        data_root=Path("data"),
        partition="dirichlet:0.1",
        samples_per_class=7,
    )
    assert MakeOptions.from_mapping(options.to_mapping()) == options


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"pears": 3}, r"unknown key of \[data\] 'pears'; allowed are .*did you mean 'peers'"),
        ({"peers": "3"}, r"\[data\] peers is '3', must be a int"),
        ({"peers": True}, r"\[data\] peers is True"),
        ({"sources": ["digits", 3]}, r"must be a list of str"),
        ({"domains": {"a": 1}}, r"a is 1, must be a path"),
        ({"sources": "mnits"}, r"unknown source of digits 'mnits'.*did you mean 'mnist'"),
        ({}, r"nothing to make shards of"),
        ({"sources": "digits", "peers": 0}, r"peers is 0, must be from 1 to 10000"),
        ({"sources": "digits", "channels": 2}, r"channels is 2, must be 1 or 3"),
        ({"sources": "digits", "partition": "fair"}, r"partition 'fair' is unknown"),
        ({"sources": "digits", "domains": {"mnist": "m.npz"}}, r"'mnist' is asked for 2 times"),
        ({"domains": {"../up": "m.npz"}}, r"name '../up' cannot be used"),
        ({"dataset": "MNIST"}, r"did you mean 'datasets'"),
        ({"datasets": "MNIST"}, r"data set MNIST needs a folder - give --data-root"),
        (
            {"sources": "mnist", "data_root": "d"},
            r"data_root is given, and no data set .* datasets",
        ),
        ({"sources": "mnist", "download": True}, r"download is given, .* or leave download out"),
        (
            {"sources": "mnist", "synth_per_class": 90},
            r"synth_per_class is 90, and synthdigits is not asked for",
        ),
    ],
)
def test_a_wrong_table_is_refused_by_name(table: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        MakeOptions.from_mapping(table)

"""TOML that a person wrote: what is read, and that nothing of it breaks whoever walks it."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.config import read_config
from peer.experiment import load_experiment
from peer.faults.file import load_faults
from protocol.errors import ConfigError
from protocol.tomltext import MAX_DEPTH, MAX_FILE_BYTES, parse_toml, read_toml


def nested(depth: int) -> str:
    """A value that lies in so many tables and lists."""
    return "a = " + "[" * (depth - 1) + "1" + "]" * (depth - 1)


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("", {}),
        ("a = 9223372036854775807", {"a": 2**63 - 1}),
        ("a = -9223372036854775808", {"a": -(2**63)}),
        ("a = 0x7fffffffffffffff", {"a": 2**63 - 1}),
        (nested(MAX_DEPTH), tomllib.loads(nested(MAX_DEPTH))),
    ],
)
def test_tables_are_read(text: str, tables: dict[str, object]) -> None:
    assert parse_toml(text) == tables


UNFIT = {
    "torn": ("a = [", "Unclosed array|Invalid value"),
    "too deep": (nested(MAX_DEPTH + 1), "nest deeper than 16"),
    "deep as a key": ("run." + "a." * 3000 + "b = 1", "nest deeper than 16"),
    "deeper than Python": ("a = " + "[" * 20_000, "nest deeper than 16"),
    "deep in a list": ("fault = [{" + "a." * 3000 + "b = 1}]", "nest deeper than 16"),
    "a bit too long": ("a = 9223372036854775808", "a is a whole number that does not fit 64 bits"),
    "too long": ("run.seed = 0x" + "f" * 5000, "run.seed is a whole number that does not fit 64"),
    "too long in a list": ("a.b = [[1, 0x" + "f" * 5000 + "]]", "a.b is a whole number that"),
    "too long for Python": ("a = " + "9" * 5000, "Exceeds the limit"),
    "NUL": ('data.shards = "a\\u0000b"', "data.shards holds a NUL character"),
    "NUL in a key": ('"a\\u0000b" = 1', "a key holds a NUL character"),
}


@pytest.mark.parametrize(("text", "said"), UNFIT.values(), ids=UNFIT)
def test_what_would_break_a_reader_is_refused_with_its_key(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_toml(text)


READERS: dict[str, Callable[[Path], object]] = {
    "tables": read_toml,
    "experiment": load_experiment,
    "faults": load_faults,
    "coordinator": lambda path: read_config(
        bind=None,
        advertise=None,
        founders=None,
        relays=None,
        run_name=None,
        experiment=path,
        assignments=(),
        lease_s=15.0,
    ),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    "content",
    [text.encode() for text, _ in UNFIT.values()] + [b"\xff\xfe", b"#" * (MAX_FILE_BYTES + 1)],
    ids=[*UNFIT, "not a text", "a large file"],
)
def test_a_file_that_nobody_can_use_is_one_line_with_its_path(
    read: Callable[[Path], object], content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400

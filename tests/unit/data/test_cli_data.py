"""`peer data make` and `peer data show`, as typed."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from peer.cli.data import data_commands
from protocol.errors import ConfigError, DataError
from tests.unit.data.makers import repacked, shard


def typed(*words: object) -> Result:
    return CliRunner().invoke(data_commands, [str(word) for word in words])


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("own.npz", x=np.zeros((40, 5, 5), np.uint8), y=np.repeat(np.arange(4), 10))
    result = typed(
        "make", "--domain", "own=own.npz", "--peers", 2, "--camps", 2, "--min-samples", 1
    )
    assert result.exit_code == 0, result.output
    assert "shards: 2 shards, images 1x5x5, partition domain, seed 0" in result.output
    assert "next: peer start --data shards/shard0" in result.output
    return tmp_path / "shards"


def test_a_folder_is_shown_and_drawn(made: Path) -> None:
    result = typed("show", "shards", "--png", "sheet.png", "--histogram", "counts.png")
    assert result.exit_code == 0, result.output
    assert "shard1 own" in result.output
    assert "camp 1 says" in result.output
    assert Path("sheet.png").stat().st_size > 0
    assert Path("counts.png").stat().st_size > 0


def test_one_shard_is_shown_by_name(made: Path) -> None:
    result = typed("show", "shard1", "--png", "sheet.png")
    assert result.exit_code == 0, result.output
    assert "shards/shard1.npz: domain own, camp 1" in result.output
    assert "source: a person's own file, own.npz" in result.output
    assert Path("sheet.png").is_file()


def test_a_shard_that_was_swapped_is_noticed(made: Path) -> None:
    (made / "shard0.npz").write_bytes((made / "shard1.npz").read_bytes())
    assert "not the shard that was made there" in str(typed("show", "shards").exception)


def test_a_changed_shard_is_noticed(tmp_path: Path) -> None:
    shard(tmp_path / "s.npz")
    repacked(tmp_path / "s.npz", x_test=np.ones((1, 2, 3, 3), np.uint8))
    error = typed("show", tmp_path / "s.npz").exception
    assert isinstance(error, DataError)
    assert "changed after it was made" in str(error)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("make",), "nothing to make shards of"),
        (("make", "digitz"), "did you mean 'digits'"),
        (("make", "--domain", "own.npz"), "is not NAME=FILE.npz"),
        (("make", "--domain", "a=1.npz", "--domain", "a=2.npz"), "--domain a is given twice"),
        (("make", "digits", "--partition", "fair"), "allowed are domain, iid"),
        (("make", "--dataset", "MNIST"), "give --data-root"),
        (("make", "--dataset", "MNITS", "--data-root", "."), "did you mean 'MNIST'"),
    ],
)
def test_a_wrong_order_is_refused_in_one_line(words: tuple[str, ...], complaint: str) -> None:
    error = typed(*words).exception
    assert isinstance(error, ConfigError)
    assert complaint in str(error)
    assert "\n" not in str(error)

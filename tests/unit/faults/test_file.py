"""Faults from a file: an experiment's, or one that holds nothing else."""

from pathlib import Path

import pytest

from peer.faults.file import load_faults
from peer.faults.table import Kind, with_ends
from protocol.errors import ConfigError

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "faults.toml"


def test_an_experiment_file_is_as_good_as_one_with_faults_alone(tmp_path: Path) -> None:
    alone = tmp_path / "alone.toml"
    text = EXAMPLE.read_text()
    alone.write_text(text[text.index("[[fault]]") :])
    assert load_faults(alone) == load_faults(EXAMPLE)
    assert [fault.kind for fault in load_faults(alone)] == [Kind.PARTITION, Kind.RANDOM]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"has no \[\[fault\]\] table"),
        ("[[fault]", "is not TOML"),
        ('[[fault]]\nkind = "heal"', r"some\.toml: \[\[fault\]\] 1 \(heal\) has no beginning"),
    ],
)
def test_a_mistake_names_the_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "some.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_faults(path)


def test_what_ends_a_fault_becomes_its_end(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(
        '[[fault]]\nkind = "kill"\nat_s = 3\npeers = ["a", "b"]\n'
        '[[fault]]\nkind = "restart"\nat_s = 5\npeer = "b"\n'
        '[[fault]]\nkind = "restart"\nat_s = 2\npeer = "a"\n'
        '[[fault]]\nkind = "coordinator-down"\nat_round = 2\n'
        '[[fault]]\nkind = "coordinator-up"\nat_s = 9\n'
        '[[fault]]\nkind = "relay-down"\nat_s = 1\nuntil_s = 4\n'
        '[[fault]]\nkind = "relay-up"\nat_s = 3\n'
    )
    kills = [f for f in with_ends(load_faults(path)) if f.kind is Kind.KILL]
    assert [(f.peers, f.span.until_s) for f in kills] == [(("a",), None), (("b",), 5.0)]
    others = {f.kind: f.span for f in with_ends(load_faults(path)) if f.kind is not Kind.KILL}
    assert others[Kind.COORDINATOR_DOWN].is_open  # the other unit ends nothing here
    assert others[Kind.RELAY_DOWN].until_s == 3.0

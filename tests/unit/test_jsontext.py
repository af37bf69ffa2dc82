"""Files of JSON that a crash, a disk or a person has spoilt end in one line, whoever reads them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.journal import Journal
from peer.data.card import parse_card
from peer.ledger import EVENTS
from peer.past import read_past
from peer.summary import read_summary
from protocol.errors import OperatorError
from protocol.jsontext import parse_json
from protocol.transport.keys import load_identity

HUGE = "2" * 40


@pytest.mark.parametrize(
    ("text", "value"),
    [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), (b"[1.5]", [1.5])],
)
def test_json_is_read(text: str | bytes, value: object) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "9223372036854775808",
        f"[{HUGE}]",
        "9" * 5000,
        "[" * 100_000,
        b"\xff",
        '{"a":' * 2000,
    ],
)
def test_what_nobody_could_use_is_one_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def started(camp: str) -> str:
    fields = f'"peer":"a","role":"peer","domain":"d","camp":{camp}'
    return f'{{"v":1,"at_s":1,"event":"started",{fields}}}\n'


SPOILT = [
    HUGE,
    "[" * 3000 + "\n",
    f'{{"v":1,"at_s":{HUGE},"event":"started"}}\n',
    started("Infinity"),
    started("NaN"),
    started(HUGE),
    started("0") + f'{{"v":1,"at_s":1,"event":"round","round":{HUGE},"mixed":null}}\n',
    started("0") + '{"v":1,"at_s":1,"event":"round","round":1e999,"mixed":null,"trained":null}\n',
    f'{{"format":"kinfolk-journal-1","checksum":"","book":{HUGE}}}',
    f'{{"format":"kinfolk-shard","version":1,"transform":{{"scale":{HUGE}}}}}',
]


def books(path: Path) -> object:
    (path.parent / "a").mkdir()
    path.rename(path.parent / "a" / EVENTS)
    return read_past(path.parent)


def journal(path: Path) -> object:
    path.rename(path.parent / "journal.json")
    return Journal(path.parent).load()


READERS: list[Callable[[Path], object]] = [
    books,
    journal,
    read_summary,
    load_identity,
    lambda path: parse_card(path.read_text()),
]


@pytest.mark.parametrize("read", READERS, ids=["events", "journal", "summary", "key", "card"])
@pytest.mark.parametrize("content", SPOILT, ids=range(len(SPOILT)))
def test_a_spoilt_file_is_one_line_for_a_person(
    read: Callable[[Path], object], content: str, tmp_path: Path
) -> None:
    path = tmp_path / "spoilt"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(OperatorError) as caught:
        read(path)
    assert "\n" not in str(caught.value)

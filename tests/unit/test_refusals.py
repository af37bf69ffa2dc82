"""Who is shut out stays so in the next process, until a person lifts it."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from peer.effects import Happened
from peer.layout import refusals_file
from peer.refusals import Refusal, Refusals
from protocol.errors import ConfigError
from protocol.ids import PeerId

B = Refusal(PeerId("b"), b"b" * 32, "16 MiB of a message without an end", 1.7e9)
C = Refusal(PeerId("c"), b"c" * 32, "likewise", 1.8e9)


class Process:
    """One life of a peer, as far as it refuses."""

    def __init__(self, folder: Path | None = None) -> None:
        self.refused: list[bytes] = []
        self.told: list[Happened] = []
        self.refusals = Refusals(refuse=self._refuse, tell=self.told.append)
        if folder is not None:
            self.refusals.open(folder)

    def _refuse(self, keys: Iterable[bytes]) -> None:
        self.refused += keys


def test_a_refusal_is_told_and_kept_for_the_next_process(tmp_path: Path) -> None:
    first = Process(tmp_path)
    assert (first.refused, first.told) == ([], [])
    first.refusals.add(B)
    first.refusals.add(C)
    assert first.refused == [B.key, C.key]
    assert first.told[0] == Happened(
        "shut-out", B.peer, "16 MiB of a message without an end; after a restart too"
    )
    second = Process(tmp_path)
    assert second.refused == [B.key, C.key]
    (b, c) = second.told
    assert (b.event, b.peer, c.peer) == ("shut-out", "b", "c")
    assert b.reason.startswith("since 2023-11-1")  # the 14th in most parts of the world
    lift = f"to take it again, stop this peer and remove {refusals_file(tmp_path)}"
    assert b.reason.endswith(f": 16 MiB of a message without an end; {lift}")


def test_one_that_came_before_there_was_a_directory_joins_those_in_it(tmp_path: Path) -> None:
    Process(tmp_path).refusals.add(B)
    early = Process()
    early.refusals.add(C)
    early.refusals.open(tmp_path)
    assert early.refused == [C.key, B.key]
    assert Process(tmp_path).refused == [B.key, C.key]


def test_removing_an_entry_lifts_one_and_removing_the_file_all(tmp_path: Path) -> None:
    kept = Process(tmp_path).refusals
    kept.add(B)
    kept.add(C)
    path = refusals_file(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text())[1:]))
    assert Process(tmp_path).refused == [C.key]
    path.unlink()
    assert Process(tmp_path).refused == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[",
        b"7",
        b'{"peer": "b"}',
        b'[{"peer": "b", "key": "62", "reason": "x", "at_s": 1}]',
        b'[{"peer": "b", "key": "no", "reason": "x", "at_s": 1}]',
        b'[{"peer": "b", "key": "%b", "reason": "x", "at_s": 1e300}]' % (b"62" * 32),
        b'[{"peer": "b", "key": "%b", "reason": "x", "at_s": NaN}]' % (b"62" * 32),
        b"[" * 100_000,
        b"\xff",
        b" " * (5 << 20),
    ],
    ids=[
        "empty",
        "torn",
        "number",
        "object",
        "short",
        "odd",
        "late",
        "nan",
        "deep",
        "bytes",
        "long",
    ],
)
def test_a_file_that_is_not_whole_lets_nobody_in_by_mistake(tmp_path: Path, content: bytes) -> None:
    path = refusals_file(tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"refused\.json is not whole") as caught:
        Process(tmp_path)
    assert "remove it to hear all members again" in caught.value.hint
    assert path.read_bytes() == content


def test_where_it_cannot_be_written_it_says_so_and_refuses_all_the_same(tmp_path: Path) -> None:
    it = Process(tmp_path)
    (tmp_path / "state").write_text("in the way")
    it.refusals.add(B)
    assert it.refused == [B.key]
    assert "until a restart: " in it.told[0].reason
    assert "refused.json cannot be written, File exists" in it.told[0].reason

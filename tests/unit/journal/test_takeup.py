"""What a peer does with what it finds in its run directory."""

from pathlib import Path

import pytest

from peer.journal import has_journal
from peer.takeup import take_up
from protocol.errors import ConfigError
from tests.unit.journal.test_journal import RUN, two_rounds

STARTED = f'{{"v": 1, "at_s": 1.0, "event": "started", "run": "{RUN.hex()}"}}\n'


def test_an_empty_place_is_a_beginning_asked_or_not(tmp_path: Path) -> None:
    for resume in (False, True):
        past = take_up(tmp_path / "a", RUN, resume=resume, force=False)
        assert (past.finished, past.collected, past.records) == (None, None, ())
    assert not (tmp_path / "a").exists()


def test_what_is_there_is_never_written_over_unasked(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    (tmp_path / "events.jsonl").write_text(STARTED)
    with pytest.raises(ConfigError, match="its newest finished round is 2") as caught:
        take_up(tmp_path, RUN, resume=False, force=False)
    assert "--resume" in caught.value.hint
    assert "--force" in caught.value.hint
    assert (tmp_path / "events.jsonl").read_text() == STARTED
    assert has_journal(tmp_path)


def test_a_run_that_finished_no_round_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(STARTED)
    with pytest.raises(ConfigError, match="it had begun, and finished no round"):
        take_up(tmp_path, RUN, resume=False, force=False)


def test_resume_finds_the_newest_round(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    past = take_up(tmp_path, RUN, resume=True, force=False)
    assert past.finished is not None
    assert past.finished.round_no == 2


def test_force_removes_our_own_files_and_nothing_else(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    for name in ("events.jsonl", "influence.npz", "summary.json", "model.safetensors"):
        (tmp_path / name).write_text(STARTED)
    for name in ("notes.txt", "peer.log"):
        (tmp_path / name).write_text("mine")
    past = take_up(tmp_path, RUN, resume=False, force=True)
    assert past.finished is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "peer.log"]


@pytest.mark.parametrize("resume", [False, True])
def test_another_run_is_left_alone(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "events.jsonl").write_text(STARTED)
    with pytest.raises(ConfigError, match=r"holds another run \(00010203\)"):
        take_up(tmp_path, bytes(16), resume=resume, force=False)
    assert (tmp_path / "events.jsonl").read_text() == STARTED

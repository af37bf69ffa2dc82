"""A run directory is taken only when that loses nothing, and nothing but our own files goes."""

from pathlib import Path

import pytest

from peer.launch.directory import RunDirectory, claimed
from protocol.errors import ConfigError


def fill(root: Path) -> None:
    for name in ("result.json", "launch.log", "curves.png", "a/events.jsonl", "a/influence.npz"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "a" / "state" / "inbox").mkdir(parents=True)


def begun(root: Path, *, force: bool = False) -> RunDirectory:
    directory = claimed(root, force=force)
    directory.begin()
    return directory


def test_results_are_refused_without_force(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(ConfigError, match="holds the results of a run - give another --out"):
        claimed(tmp_path, force=False)
    assert (tmp_path / "a" / "influence.npz").exists()


def test_force_removes_our_own_files_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    begun(tmp_path, force=True)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == [".home", "a", "a/notes.txt", "notes.txt"]


def test_a_run_that_never_began_needs_no_force(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "events.jsonl").touch()
    (tmp_path / "launch.log").touch()
    begun(tmp_path)
    assert not (tmp_path / "a").exists()


def test_results_stay_until_the_run_begins(tmp_path: Path) -> None:
    fill(tmp_path)
    claimed(tmp_path, force=True)
    assert (tmp_path / "result.json").exists()


def test_the_home_of_a_run_is_private(tmp_path: Path) -> None:
    directory = begun(tmp_path / "new" / "run")
    assert directory.home.stat().st_mode & 0o777 == 0o700
    directory.forget_keys()
    assert not directory.home.exists()


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written: "):
        claimed(tmp_path / "file" / "run", force=False)

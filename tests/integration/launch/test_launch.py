"""A launch among processes that finish, fail, die, hang, or are told to stop."""

import json
import signal
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from peer.data.card import Card
from peer.data.shard import Split, save_shard
from peer.experiment import load_experiment
from peer.launch.run import Consoles, launch
from peer.pictures import draw_curves

FAKES = Path(__file__).parent / "fakes"
NAMES = ("a", "b", "c")

Launch = Callable[..., int]


@pytest.fixture(autouse=True, scope="module")
def fonts_are_open(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Draw once: matplotlib keeps the files of its fonts open, which is no leak of ours."""
    draw_curves(tmp_path_factory.mktemp("fonts") / "curves.png", (), title="fonts")


@pytest.fixture(autouse=True)
def signals_are_as_before() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    (tmp_path / "shards").mkdir()
    one = Split(np.zeros((1, 4, 4, 1), np.uint8), np.zeros(1, np.int64))
    splits = {"train": one, "val": one, "test": one}
    for name in NAMES:
        save_shard(tmp_path / "shards" / f"{name}.npz", Card(domain="d", classes=("x",)), splits)
    path = tmp_path / "tiny.toml"
    peers = "".join(f'[[peer]]\ndata = "{name}"\n' for name in NAMES)
    path.write_text(f'[run]\nrounds = 2\n[data]\nshards = "shards"\n{peers}')
    return path


@pytest.fixture
def output() -> StringIO:
    return StringIO()


@pytest.fixture
def run(
    experiment: Path, output: StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Launch:
    """Launch fakes in place of the coordinator and the peers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(FAKES))

    def launched(*, coordinator: str = "", **peers: str) -> int:
        monkeypatch.setenv("FAKE_PEERS", json.dumps(peers))
        monkeypatch.setenv("FAKE_COORDINATOR", coordinator)
        consoles = Consoles(
            Console(file=output, width=200), Console(file=output, width=200), all_lines=False
        )
        return launch(load_experiment(experiment), tmp_path / "run", consoles, force=False)

    return launched


def result(folder: Path) -> Any:
    return json.loads((folder / "run" / "result.json").read_text())


def test_when_all_finish_the_result_has_a_row_for_each(
    run: Launch, tmp_path: Path, output: StringIO
) -> None:
    assert run() == 0
    assert [peer["id"] for peer in result(tmp_path)["peers"]] == list(NAMES)
    assert result(tmp_path)["failed"] == []
    assert "25.0%" in output.getvalue()
    root = tmp_path / "run"
    assert (root / "curves.png").exists()
    assert not (root / ".home").exists()  # keys of a run that is over
    assert not list(root.glob("*/state"))
    assert (root / "experiment.toml").read_text() == (tmp_path / "tiny.toml").read_text()


def test_a_founder_that_fails_ends_the_others_and_its_words_are_the_last(
    run: Launch, tmp_path: Path, output: StringIO
) -> None:
    assert run(a="waits", b="fails", c="waits") == 2
    assert output.getvalue().rstrip().splitlines()[-1] == (
        "Error: b failed: the shard is empty - give another"
    )
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_peer_that_dies_in_mid_run_costs_the_others_nothing(
    run: Launch, tmp_path: Path, output: StringIO
) -> None:
    assert run(b="dies") == 1
    whole = result(tmp_path)
    assert [peer["id"] for peer in whole["peers"]] == ["a", "c"]
    assert whole["failed"] == [{"name": "b", "code": -9, "words": "it was killed by SIGKILL"}]
    assert "Error: b failed: it was killed by SIGKILL" in output.getvalue()


def test_who_dies_is_started_again_as_often_as_the_file_says(
    run: Launch, experiment: Path, tmp_path: Path, output: StringIO
) -> None:
    experiment.write_text("[launch]\nrestart = 1\n" + experiment.read_text())
    assert run(b="dies") == 1
    assert output.getvalue().count("b has died and is started again") == 1
    assert [failure["name"] for failure in result(tmp_path)["failed"]] == ["b"]


def test_a_launcher_that_is_told_to_stop_ends_everybody(
    run: Launch, tmp_path: Path, output: StringIO
) -> None:
    assert run(a="waits", b="stops the launcher", c="waits") == 128 + signal.SIGTERM
    assert "Stopped by SIGTERM" in output.getvalue()
    assert (tmp_path / "run" / "b" / "events.jsonl").exists()


def test_a_coordinator_that_refuses_is_the_end(run: Launch, output: StringIO) -> None:
    assert run(coordinator="refuses") == 2
    assert "Error: coordinator failed: port 7733 is in use - choose another" in output.getvalue()


def test_a_coordinator_that_dies_before_the_run_is_the_end(run: Launch) -> None:
    assert run(coordinator="dies", a="waits", b="waits", c="waits") == 1


def test_what_processes_say_is_in_the_log_with_their_names(run: Launch, tmp_path: Path) -> None:
    run(b="fails", a="waits", c="waits")
    log = (tmp_path / "run" / "launch.log").read_text().splitlines()
    assert "b           | Error: the shard is empty" in log


def test_a_run_is_not_written_over(run: Launch) -> None:
    assert run() == 0
    with pytest.raises(Exception, match="holds the results of a run"):
        run()

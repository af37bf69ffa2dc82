"""Who cannot join: one clear line each, exit code 2, and the run goes on without them.

One coordinator, and one good peer that waits in its lobby while all the others are turned away.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from protocol.joinstring import JoinString
from protocol.transport.keys import new_identity
from tests.integration.peers.village import LOOPBACK, Process, User, Village, village
from tests.unit.training.classroom import write_digits

START = ("peer", "start", "--gpu=cpu")
ANOTHER_VERSION = (
    "import protocol.wire.messages as m; m.WIRE_VERSION = 99; from peer.cli import main; main()"
)


@dataclass(frozen=True)
class Lobby:
    place: Village
    host: User  # with the coordinator and the waiting peer
    stranger: User  # with another home
    coordinator: Process
    waiting: Process
    join: JoinString


@pytest.fixture(scope="module")
def lobby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lobby]:
    with village(tmp_path_factory.mktemp("lobby")) as place:
        place.deal(("good", "other"))
        wide = np.zeros((6, 8, 9), np.uint8)
        np.savez(place.shards / "wide.npz", x_train=wide, y_train=np.arange(6) % 3)
        host, stranger = place.user(), place.user()
        coordinator = host.coordinator(*LOOPBACK, founders=2, model="mlp", run__rounds=7)
        join = JoinString.parse(coordinator.out)
        waiting = host.peer("good")
        waiting.wait_for_event("lobby", ready=1)
        yield Lobby(place, host, stranger, coordinator, waiting, join)
        assert waiting.code is None, waiting.err  # nothing that befell the others has touched it
        assert {line["ready"] for line in waiting.happenings("lobby")} <= {0, 1}
        waiting.signal(15)
        assert waiting.end() == 0, waiting.err


def refused(process: Process, *expected: str, within_s: float = 60.0) -> None:
    """It ends with 2 and one line that says all this, and shows no insides."""
    assert process.end(within_s) == 2, process.err
    (error,) = process.errors()
    said = process.err[process.err.index("Error:") :]
    for words in expected:
        assert words in said
    assert len(said.splitlines()) <= 2, said  # the error, and what to do
    assert error == error.rstrip()


def test_a_coordinator_with_another_key(lobby: Lobby) -> None:
    another = replace(lobby.join, curve_key=new_identity().curve_public)
    process = lobby.host.type(
        *START, "--data=other", *LOOPBACK, f"--join={another}", "--patience=1"
    )
    refused(process, "tried for 1 s", "its key is another than the join string's")


def test_a_wrong_token(lobby: Lobby) -> None:
    another = replace(lobby.join, token=bytes(16))
    process = lobby.host.type(*START, "--data=other", *LOOPBACK, f"--join={another}")
    refused(process, "the token is not this run's: use the join string that its coordinator")


def test_a_second_peer_with_the_same_name_on_this_host(lobby: Lobby) -> None:
    process = lobby.host.type(*START, "--data=good", *LOOPBACK)
    refused(process, "a peer named good is already running", f"pid {lobby.waiting.pid}")


def test_a_second_peer_with_the_same_name_and_another_key(lobby: Lobby) -> None:
    process = lobby.stranger.type(*START, "--data=good", *LOOPBACK, f"--join={lobby.join}")
    refused(process, "the name good is taken by a peer with another key", "--name")


@pytest.mark.parametrize("option", ["--rounds=8", "--option=solver.lr=0.5", "--model=lenet5"])
def test_options_that_are_not_the_runs(lobby: Lobby, option: str) -> None:
    key, value = {
        "--rounds=8": ("run.rounds", "8"),
        "--option=solver.lr=0.5": ("solver.lr", "0.5"),
        "--model=lenet5": ("model", "lenet5"),
    }[option]
    process = lobby.host.type(*START, "--data=other", *LOOPBACK, option)
    refused(process, f"{key}: you asked for {value}, the run has ")


def test_faults_that_are_not_the_runs(lobby: Lobby, tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    kill = '[[fault]]\nkind = "kill"\nat_round = 3\npeer = "good"\n'
    file.write_text('[[fault]]\nkind = "random"\nrate = 0.3\n' + kill)
    process = lobby.host.type(*START, "--data=other", *LOOPBACK, f"--faults={file}")
    refused(process, "faults: you asked for 1 in rounds (", "the run has none", "same file with --")
    assert "other: nobody carries out [[fault]] 2 (kill good): what befalls" in process.err


def test_images_of_another_shape_than_the_others(lobby: Lobby) -> None:
    process = lobby.host.type(*START, "--data=wide", *LOOPBACK)
    refused(process, "data.input: you asked for 1x8x9, the run has 1x8x8")


def test_another_version_of_the_wire(lobby: Lobby) -> None:
    process = lobby.host.python(
        "-c", ANOTHER_VERSION, "start", "--data=other", "--gpu=cpu", *LOOPBACK
    )
    refused(process, "wire: you speak version 99, the run speaks 1")


def test_a_run_directory_that_cannot_be_written(lobby: Lobby, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    process = lobby.host.type(*START, "--data=other", *LOOPBACK, f"--out={tmp_path}/file/run")
    refused(process, f"run directory {tmp_path}/file/run/other cannot be read: Not a directory")
    lobby.coordinator.wait_for("goodbye", lambda: "other left" in lobby.coordinator.err)


def test_a_run_directory_of_another_run(lobby: Lobby, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "other"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text(
        '{"v": 1, "at_s": 1.0, "event": "started", "run": "0123456789abcdef"}\n'
    )
    process = lobby.host.type(*START, "--data=other", *LOOPBACK, f"--out={tmp_path}/run")
    refused(process, f"{folder} holds another run (01234567)", "--out")


@pytest.mark.long
def test_a_first_peer_whose_model_cannot_be_built_leaves_the_run_to_others(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        write_digits(place.shards / "small.npz", first=0, num=64)
        user = place.user()
        user.coordinator(*LOOPBACK, founders=1, run__rounds=1)
        refused(user.peer("small", *LOOPBACK, "--model=lenet5"), "lenet5 needs images", "(1, 8, 8)")
        second = user.peer("small", *LOOPBACK, "--model=mlp", "--out=again")
        assert second.end() == 0, second.err
        assert list(second.rounds()) == [1]

"""What people type wrong: one clear line each, exit code 2, and nothing has begun.

The commands run in this process, as their console scripts call them: nothing may be left open.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from peer.cli import main
from protocol.joinstring import JoinString
from protocol.transport.addresses import parse_host_port
from protocol.transport.keys import new_identity
from protocol.transport.zeromq import ZeroMq
from tests.integration.peers.village import LOOPBACK
from tests.unit.training.classroom import write_digits

Refused = Callable[..., str]

JOIN = JoinString("127.0.0.1", 1, bytes(32), bytes(32), bytes(16))  # nobody is there
START = ("start", "--gpu=cpu", "--patience=0.5", *LOOPBACK)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typed") / "shards"
    folder.mkdir()
    x = np.zeros((6, 8, 8), np.uint8)
    y = np.array([0, 1, 2, 0, 1, 2])
    nan = np.zeros((6, 8, 8), np.float32)
    nan[4, 2, 2] = np.nan
    np.savez(folder / "empty.npz", x_train=x[:0], y_train=y[:0])
    np.savez(folder / "one-class.npz", x_train=x, y_train=0 * y)
    np.savez(folder / "nan.npz", x_train=nan, y_train=y)
    np.savez(folder / "labels.npz", x_train=x, y_train=y, classes=np.array(["a", "b"]))
    np.savez(folder / "unlabelled.npz", x_train=x)
    whole = write_digits(folder / "good.npz", first=0, num=64).read_bytes()
    (folder / "torn.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "text.npz").write_text("not an archive")
    return folder


@pytest.fixture
def refused(
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Refused:
    """Type a command of `peer`; what it says of the one thing that is wrong."""
    monkeypatch.chdir(shards.parent)
    monkeypatch.setenv("KINFOLK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KINFOLK_JOIN", str(JOIN))
    monkeypatch.setattr(logging.root, "handlers", list(logging.root.handlers))

    def type_it(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = capsys.readouterr().err
        assert ended.value.code == 2, said
        assert "Traceback" not in said
        assert said.count("Error:") == 1
        told = said[said.index("Error:") :]
        assert len(told.splitlines()) <= 2, told
        return told

    return type_it


DATA = {
    "nothing": ("no shard 'nothing'", "shards/good.npz", "shards/nan.npz"),
    "empty": ("empty.npz is empty: it has no training sample",),
    "one-class": ("one-class.npz has one class only; a classifier needs two",),
    "nan": ("nan.npz", "NaN or infinite pixels in 1 of 6 samples, the first is sample 4"),
    "labels": ("labels.npz", "label 2, allowed are 0 to 1"),
    "unlabelled": ("holds only one of x_train and y_train",),
    "torn": ("torn.npz is torn",),
    "text": ("text.npz is torn or not an .npz file",),
}


@pytest.mark.parametrize("data", DATA)
def test_data_that_cannot_be_used(refused: Refused, data: str) -> None:
    said = refused(*START, "--data", data)
    assert all(words in said for words in DATA[data]), said


OPTIONS = {
    "--gpuu=0": ("--gpuu", "--gpu"),
    "--rounds=0": ("run.rounds", "0"),
    "--rounds=many": ("run.rounds", "many"),
    "--method=kinflok": ("there is no method 'kinflok'", "kinfolk"),
    "--mixer=median": ("there is no mixer 'median'", "comes with a package, which this host needs"),
    "--solver=fedprx": ("there is no solver 'fedprx'", "fedprox"),
    "--aggregator=scaffold": ("aggregator = scaffold needs one start point",),
    "--model=lenet6": ("lenet6", "lenet5"),
    "--option=faults=none": ("faults is no option", "--faults"),
    "--option=solver.lrr=1": ("solver.lrr", "solver.lr"),
    "--option=pace.qourum=1": ("there is no option 'pace.qourum'", "pace.quorum"),
    "--option=solver.lr=-1": ("solver.lr", "-1"),
    "--option=model.norm=batch": ("lenet5 has no normalisation layers",),
    "--option=rounds": ("rounds", "KEY=VALUE"),
    "--patience=0": ("--patience",),
    "--patience=nan": ("--patience", "nan is not a number"),
    "--max-mbit=nan": ("--max-mbit", "nan is not a number"),
    "--topology=hexagon": ("hexagon",),
    "--gpu=tpu": ("--gpu tpu cannot be used: it must be cpu or a number",),
    "--name=a/b": ("name 'a/b' cannot be used", "give another with --name"),
    "--join=kinfolk1:127.0.0.1:7733:c2hvcnQ": ("the join string is torn: part of it is missing",),
    "--join=hello": ("'hello' is not a join string",),
    "--advertise=0.0.0.0": ("--advertise 0.0.0.0 is not an address that others can reach",),
    "--bind=127.0.0.1:99999": ("99999",),
    "--bind=192.0.2.1:0": ("cannot bind tcp://192.0.2.1:0",),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_cannot_be_used(refused: Refused, option: str) -> None:
    said = refused(*START, "--data=good", option)
    assert all(words in said for words in OPTIONS[option]), said


@pytest.mark.parametrize("patience", ["0", "inf"])
def test_a_relay_whose_patience_cannot_be_used(refused: Refused, patience: str) -> None:
    assert "--patience" in refused("relay", f"--patience={patience}")


def test_a_port_in_use(refused: Refused) -> None:
    keys = new_identity()
    transport = ZeroMq(public_key=keys.curve_public, secret_key=keys.curve_secret)
    try:
        listener = transport.listen("tcp://127.0.0.1:0", admits=lambda _key: False)
        taken = str(parse_host_port(listener.address, default_port=0))
        said = refused("start", "--data=good", f"--bind={taken}")
        assert said.startswith(f"Error: tcp://{taken} is in use\n  choose another port")
    finally:
        transport.close()


def test_a_coordinator_that_is_not_there(refused: Refused) -> None:
    said = refused(*START, "--data=good")
    assert "no coordinator at tcp://127.0.0.1:1 (from $KINFOLK_JOIN): tried for 0.5 s" in said


def test_no_join_string_anywhere(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINFOLK_JOIN")
    said = refused(*START, "--data=good")
    assert said.startswith("Error: no join string: none in --join or $KINFOLK_JOIN, none stored")
    assert "run 'coordinator start' here, or 'peer join STRING'" in said


def test_a_torn_join_string_is_not_stored(refused: Refused, tmp_path: Path) -> None:
    said = refused("join", str(JOIN)[:-1])
    assert said.startswith("Error: the join string is torn: part of it is missing")
    assert not (tmp_path / "home" / "join").exists()


def test_a_join_string_that_others_can_read(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINFOLK_JOIN")
    stored = tmp_path / "home" / "join"
    stored.parent.mkdir(mode=0o700)
    stored.write_text(str(JOIN))
    stored.chmod(0o644)
    assert f"chmod 600 {stored}" in refused(*START, "--data=good")


def test_a_home_that_cannot_be_made(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KINFOLK_HOME", str(tmp_path / "file" / "home"))
    said = refused(*START, "--data=good")
    assert f"the folder {tmp_path}/file/home" in said
    assert "cannot be made: Not a directory\n  set KINFOLK_HOME to a folder of your own" in said


def test_a_shard_whose_name_is_no_peers_name(refused: Refused, shards: Path) -> None:
    path = shards / "my shard.npz"
    path.write_bytes((shards / "good.npz").read_bytes())
    said = refused(*START, f"--data={path}")
    assert "name 'my shard' cannot be used" in said
    assert "give another with --name" in said

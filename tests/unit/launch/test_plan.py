"""What an experiment starts: whom, with which options, in which environment."""

from pathlib import Path

import numpy as np
import pytest

from peer.data.card import Card
from peer.data.shard import Split, save_shard
from peer.experiment import Experiment, LaunchTable, load_experiment
from peer.launch.plan import (
    Seat,
    coordinator_command,
    node_command,
    peer_environ,
    relay_count,
    seats,
    thread_count,
)
from peer.launch.stage import set_stage
from peer.options.attack import Attack
from protocol.errors import ConfigError, DataError
from protocol.manifest import parse_assignment


def load(folder: Path, text: str = "") -> Experiment:
    path = folder / "tiny.toml"
    path.write_text(f'{text}\n[data]\nshards = "shards"\n' if "[data]" not in text else text)
    return load_experiment(path)


def make_shard(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    one = Split(np.zeros((1, 4, 4, 1), np.uint8), np.zeros(1, np.int64))
    save_shard(path, Card(domain="d", classes=("x",)), {"train": one, "val": one, "test": one})


def test_peers_sit_at_their_shards_with_the_gpu_of_the_launch_or_their_own(tmp_path: Path) -> None:
    make_shard(tmp_path / "shards" / "s0.npz")
    make_shard(tmp_path / "elsewhere" / "s1.npz")
    experiment = load(
        tmp_path,
        '[launch]\ngpu = "cpu"\n[[peer]]\nname = "a"\ndata = "s0"\n'
        '[[peer]]\ndata = "elsewhere/s1.npz"\ngpu = "1"\nattack = "scale:3"\n',
    )
    assert seats(experiment, tmp_path / "shards") == (
        Seat("a", tmp_path / "shards" / "s0.npz", "cpu"),
        Seat("s1", tmp_path / "elsewhere" / "s1.npz", "1", Attack("scale", 3.0)),
    )


def test_more_peers_than_can_be_played_are_refused_before_anything_is_replaced(
    tmp_path: Path,
) -> None:
    for name in ("s0", "s1"):
        make_shard(tmp_path / "shards" / f"{name}.npz")
    experiment = load(tmp_path, '[[peer]]\ndata = "s0"\n[[peer]]\ndata = "s1"\n')
    with pytest.raises(ConfigError, match="2 peers are too many, 1 are allowed - peer simulate"):
        set_stage(experiment, tmp_path / "run", force=False, most=1)
    assert len(set_stage(experiment, tmp_path / "run", force=False, most=2).seats) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[peer]]\ndata = "s9"\n', "no shard 's9'.*there are: s0"),
        ('[[peer]]\nname = "shards"\ndata = "s0"\n', "cannot be named shards"),
        ('[relay]\nname = "shards"\n[[peer]]\ndata = "s0"\n', "cannot be named shards"),
        ('[run]\nfounders = 3\n[[peer]]\ndata = "s0"\n', "tiny.toml: .* but there are 1 peers"),
        (
            '[[peer]]\ndata = "s0"\n[[fault]]\nkind = "join"\nat_s = 2\npeer = "s0"\n',
            "tiny.toml: all 1 peers join in seconds",
        ),
        ('[run]\ntopology = "k-regular:4"\n[[peer]]\ndata = "s0"\n', "does not fit 1 peers"),
    ],
)
def test_seats_that_nobody_can_take_are_refused(text: str, said: str, tmp_path: Path) -> None:
    make_shard(tmp_path / "shards" / "s0.npz")
    with pytest.raises((ConfigError, DataError), match=said):
        seats(load(tmp_path, text), tmp_path / "shards")


def test_a_folder_that_nobody_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a finished folder of shards"):
        seats(load(tmp_path), tmp_path / "shards")


def test_the_coordinator_is_given_every_line_as_it_was_meant(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        '[run]\nname = "x"\nseed = 3\n[solver]\nlr = 1e-5\nnesterov = true\nmomentum = 0.5\n'
        '[model]\nname = "cnn"\n',
    )
    command = coordinator_command(experiment, 4, {}, tmp_path)
    argv = list(command.argv)
    typed = [argv[at + 1] for at, word in enumerate(argv) if word == "--option"]
    assert dict(parse_assignment(text) for text in typed) == experiment.explicit
    assert argv[argv.index("--founders") + 1] == "4"
    assert argv[argv.index("--bind") + 1] == "127.0.0.1:0"
    assert argv[argv.index("--run") + 1] == "x"


def test_a_peer_has_nothing_of_the_persons_own_and_waits_passively(tmp_path: Path) -> None:
    person = {"PATH": "/bin", "KINFOLK_JOIN": "other", "KINFOLK_DATA": "/data"}
    environ = peer_environ(person, tmp_path, join="j", threads=2)
    assert environ == {
        "PATH": "/bin",
        "PYTHONUNBUFFERED": "1",
        "KINFOLK_HOME": str(tmp_path),
        "KINFOLK_JOIN": "j",
        "KINFOLK_LAUNCHED": "1",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def test_a_peers_token_is_not_on_its_command_line(tmp_path: Path) -> None:
    experiment = load(tmp_path, "[compare]\nalone = true\n")
    seat = Seat("a", Path("/shards/s0.npz"), "cpu")
    environ = {"KINFOLK_JOIN": "secret"}
    command = node_command(experiment, seat, out=tmp_path, threads=1, environ=environ)
    assert "secret" not in command.argv
    assert "--alone" in command.argv
    assert list(command.argv)[1:6] == ["-m", "peer", "start", "--json", "--data"]


def test_a_peer_is_told_how_to_attack(tmp_path: Path) -> None:
    seat = Seat("a", Path("/shards/s0.npz"), "cpu", Attack("noise", 0.5))
    command = node_command(load(tmp_path), seat, out=tmp_path, threads=1, environ={})
    argv = list(command.argv)
    assert argv[argv.index("--attack") + 1] == "noise:0.5"


def test_a_relay_is_started_without_data_and_the_lobby_waits_for_it(tmp_path: Path) -> None:
    experiment = load(tmp_path, '[relay]\nname = "hub"\naggregator = "fedavg"\n')
    assert experiment.relay is not None
    relay = node_command(experiment, experiment.relay, out=tmp_path, threads=2, environ={})
    assert relay.name == "hub"
    argv = list(relay.argv)
    assert argv[1:4] == ["-m", "peer", "relay"]
    assert [argv[argv.index(o) + 1] for o in ("--name", "--gpu", "--threads")] == [
        "hub",
        "cpu",
        "2",
    ]
    coordinator = list(coordinator_command(experiment, 3, {}, tmp_path).argv)
    assert coordinator[coordinator.index("--relays") + 1] == "1"
    assert 'aggregator="fedavg"' in coordinator


def test_the_lobby_waits_for_no_relay_that_joins_after_it(tmp_path: Path) -> None:
    relay = '[relay]\nname = "hub"\naggregator = "fedavg"\n'
    join = '[[fault]]\nkind = "join"\npeer = "hub"\n'
    assert relay_count(load(tmp_path, relay)) == 1
    assert relay_count(load(tmp_path, relay + join + "at_round = 3\n")) == 1
    late = load(tmp_path, relay + join + "at_s = 3\n")
    argv = list(coordinator_command(late, 3, {}, tmp_path).argv)
    assert argv[argv.index("--relays") + 1] == "0"


def test_threads_are_at_least_one() -> None:
    assert thread_count(LaunchTable(), 10_000) == 1
    assert thread_count(LaunchTable(threads=3), 10_000) == 3

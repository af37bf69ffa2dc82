"""Which processes an experiment needs: programs, options, environments. Starts nothing."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peer.data.folder import read_folder
from peer.data.shard import shard_facts
from peer.experiment import Experiment, LaunchTable, PeerTable, RelayTable
from peer.faults.feasible import check_feasible
from peer.faults.reading import check_names
from peer.faults.table import Kind, late_names
from peer.faults.weather import LAUNCHED
from peer.launch.board import COORDINATOR
from peer.launch.processes import Command
from peer.options.attack import Attack
from peer.options.fields import Value
from protocol.errors import ConfigError, DataError
from protocol.ids import peer_id

__all__ = [
    "Seat",
    "coordinator_command",
    "founder_count",
    "node_command",
    "peer_environ",
    "relay_count",
    "seats",
    "thread_count",
]

LOOPBACK = "127.0.0.1:0"
COPY = "experiment.toml"  # of the experiment file, in the run directory
RESERVED = (COORDINATOR, "shards")  # names in the run directory that are no peer's
_RESUME = ["--resume"]  # as the same node, at the round where it was
_VERBOSITY: Mapping[str, tuple[str, ...]] = {"warning": (), "info": ("-v",), "debug": ("-vv",)}


@dataclass(frozen=True, slots=True)
class Seat:
    """One peer to be started."""

    name: str
    data: Path
    gpu: str
    attack: Attack | None = None


def seats(experiment: Experiment, folder: Path) -> tuple[Seat, ...]:
    """Say who takes part: the peers of the file, or one for each shard of the folder.

    Raises:
        DataError: a shard is missing, or none is there.
        ConfigError: fewer than the founders, a name that cannot be used, two of one name, or
            faults that the run would wait for for ever.
    """
    peers = experiment.peers or tuple(
        PeerTable(name=peer_id(name), data=name) for name in _names_in(folder)
    )
    taken = tuple(
        Seat(peer.name, _found(peer.data, folder, experiment.path.parent), gpu, peer.attack)
        for peer in peers
        for gpu in [peer.gpu if peer.gpu is not None else experiment.launch.gpu]
    )
    relay = (experiment.relay.name,) if experiment.relay is not None else ()
    for name in (*(seat.name for seat in taken), *relay):
        if name in RESERVED:
            raise ConfigError(f"a node cannot be named {name}: the run directory needs it")
    if relay and relay[0] in {seat.name for seat in taken}:
        raise ConfigError(f"[relay] and a peer are both named {relay[0]}")
    experiment.settings.topology.check_names(peer_id(seat.name) for seat in taken)
    _check_faults(experiment, [seat.name for seat in taken], relay)
    return taken


def founder_count(experiment: Experiment, taken: Sequence[Seat]) -> int:
    """How many the lobby waits for: as the file says, or all who are there from the beginning."""
    late = late_names(experiment.faults)
    return experiment.founders or sum(seat.name not in late for seat in taken)


def relay_count(experiment: Experiment) -> int:
    """How many relays the lobby waits for: one that joins in seconds comes after it."""
    relay = experiment.relay
    return int(relay is not None and relay.name not in late_names(experiment.faults))


def _check_faults(experiment: Experiment, peers: Sequence[str], relays: Sequence[str]) -> None:
    """Refuse faults and durations of peers that are not there, and those that nobody outlives."""
    names = [*peers, *relays]
    try:
        check_names(experiment.faults, names)
        check_feasible(
            experiment.faults,
            peers,
            rounds=experiment.settings.run.rounds,
            founders=experiment.founders,
        )
    except ConfigError as error:
        raise ConfigError(f"{experiment.path}: {error.args[0]}", hint=error.hint) from None
    for fault in experiment.faults:
        if fault.kind in {Kind.RELAY_DOWN, Kind.RELAY_UP} and experiment.relay is None:
            raise ConfigError(
                f"{experiment.path}: [[fault]] {fault.number} ({fault.kind}) is of a relay, and "
                "this experiment has none",
                hint="[relay] gives it one",
            )
    for name in experiment.timing.peers:
        if name not in names:
            raise ConfigError(
                f"{experiment.path}: [timing.peers.{name}] is of no peer of this run",
                hint=f"there are: {', '.join(names)}",
            )


def _names_in(folder: Path) -> tuple[str, ...]:
    return tuple(shard.name for shard in read_folder(folder).shards)


def _found(data: str, folder: Path, base: Path) -> Path:
    """Find a peer's shard by its name in the folder, else as a path beside the experiment."""
    for path in (folder / f"{data}.npz", folder / data, base / data, base / f"{data}.npz"):
        if path.is_file():
            shard_facts(path)  # what is wrong with it is told now, once
            return path.absolute()
    there = sorted(path.stem for path in folder.glob("*.npz"))
    raise DataError(
        f"no shard {data!r}: looked in {folder} and for a file beside the experiment",
        hint=f"there are: {', '.join(there)}" if there else "",
    )


def thread_count(launch: LaunchTable, num_peers: int) -> int:
    """Share this process's cores out."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return launch.threads or max(1, cores // num_peers)


def coordinator_command(
    experiment: Experiment,
    num_peers: int,
    environ: Mapping[str, str],
    home: Path,
    *,
    again: bool = False,
) -> Command:
    """Say how the coordinator is started; `again`, where it was: its book knows the port."""
    argv = [sys.executable, "-m", "coordinator", "start", *([] if again else ["--bind", LOOPBACK])]
    argv += ["--run", experiment.name, "--founders", str(experiment.founders or num_peers)]
    argv += ["--relays", str(relay_count(experiment))]
    for key, value in experiment.explicit.items():
        argv += ["--option", f"{key}={_typed(value)}"]
    return Command(COORDINATOR, argv, _environ(environ, home))


def node_command(
    experiment: Experiment,
    seat: Seat | RelayTable,
    *,
    out: Path,
    threads: int,
    environ: Mapping[str, str],
    again: bool = False,
) -> Command:
    """Say how a peer, or the relay, is started, for the first time or again.

    Its token travels in the environment, which `ps` does not show.
    """
    argv = [sys.executable, "-m", "peer", "start" if isinstance(seat, Seat) else "relay", "--json"]
    if isinstance(seat, Seat):
        argv += ["--data", str(seat.data), *(["--alone"] if experiment.alone else [])]
        argv += ["--attack", str(seat.attack)] if seat.attack is not None else []
    argv += _shared(experiment, seat, out=out, threads=threads)
    return Command(seat.name, argv + _RESUME * again, environ)


def _shared(
    experiment: Experiment, seat: Seat | RelayTable, *, out: Path, threads: int
) -> list[str]:
    argv = ["--name", seat.name, "--gpu", seat.gpu, "--bind", LOOPBACK]
    argv += ["--out", str(out), "--threads", str(threads)]
    for key, value in experiment.consent.items():
        argv += ["--option", f"{key}={_typed(value)}"]
    if experiment.faults:
        argv += ["--faults", str(out / COPY)]
    return argv + list(_VERBOSITY[experiment.launch.log])


def peer_environ(
    environ: Mapping[str, str], home: Path, *, join: str, threads: int
) -> Mapping[str, str]:
    """Give a peer the run's join string, its share of the cores, and waiting that costs none.

    Threads of OpenMP that spin while they wait take the cores from the other peers.
    """
    return _environ(environ, home) | {
        "KINFOLK_JOIN": join,
        LAUNCHED: "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def _environ(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Leave a person's own keys, join strings and data folder out of it."""
    kept = {key: value for key, value in environ.items() if not key.startswith("KINFOLK_")}
    return kept | {"KINFOLK_HOME": str(home), "PYTHONUNBUFFERED": "1"}


def _typed(value: Value) -> str:
    """Write a value so that `--option` reads the same one."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case _:
            return repr(value)

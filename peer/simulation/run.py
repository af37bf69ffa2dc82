"""A simulation from start to end: as a launch, on virtual time and in one process."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from peer.cached import find_view
from peer.chronicle import Chronicle
from peer.data import shard_facts
from peer.data.archive import replacing
from peer.display import Silence
from peer.experiment import MAX_PEERS, Experiment, RelayTable
from peer.faults.plan import agreed
from peer.faults.table import late_names
from peer.launch.board import Board, Failure
from peer.launch.directory import RunDirectory
from peer.launch.plan import Seat, founder_count, relay_count
from peer.launch.report import report
from peer.launch.stage import set_stage, tell_failures, tell_unused
from peer.node import Node, Plan
from peer.roles import Role
from peer.settings import FAULTS, complete, typed
from peer.simulation.coordinator_host import key_of
from peer.simulation.engine import Engine
from peer.simulation.heap import give_back
from peer.simulation.peer_host import PeerHost
from peer.simulation.script import Script
from peer.simulation.timing import TimingTable
from peer.simulation.workers import Workers
from peer.simulation.world import World
from peer.start import wishes_of
from peer.work import Prepare, Setting
from protocol.ids import PeerId, peer_id
from protocol.manifest import Manifest
from protocol.transport.zeromq import raise_descriptor_limit
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, Join, Option
from protocol.wire.signing import sign_public

__all__ = ["host_of", "simulate"]


@dataclass(frozen=True, slots=True)
class Consoles:
    """Progress is for a person, the table for whoever reads the output."""

    progress: Console
    result: Console


def simulate(
    experiment: Experiment, out: Path, consoles: Consoles, *, force: bool, workers: int = 1
) -> int:
    """Play an experiment on virtual time and leave its results in `out`, as a launch does.

    Args:
        experiment: what to play.
        out: run directory.
        consoles: where to write.
        force: replace the results in `out`.
        workers: processes that train; 1 is this one. Their number changes no result.

    Returns:
        The exit code: 0 when every peer has finished; 2 or 1 when one has failed by an operator's
        fault or ours.

    Raises:
        OperatorError: the run directory, the data or the peers are not fit to start.
    """
    stage = set_stage(experiment, out, force=force, most=MAX_PEERS)
    tell_unused(experiment, consoles.progress)
    give_back()  # making data takes more than any peer, and leaves its memory in pieces
    directory = stage.directory
    directory.forget_keys()
    raise_descriptor_limit()  # each peer keeps its events open
    with _engine(workers) as engine:
        board = _play(experiment, directory, stage.seats, engine, consoles.progress)
    report(experiment, directory, board, progress=consoles.progress, result=consoles.result)
    return tell_failures(experiment, directory, board, consoles.progress)


def _play(
    experiment: Experiment,
    directory: RunDirectory,
    taken: Sequence[Seat],
    engine: Engine,
    progress: Console,
) -> Board:
    settings = experiment.settings
    late = late_names(experiment.faults)
    players: dict[PeerId, Seat | RelayTable] = {peer_id(seat.name): seat for seat in taken}
    if experiment.relay is not None:
        players[experiment.relay.name] = experiment.relay
    starts: Counter[PeerId] = Counter()
    timings = _timings(experiment, directory, taken[0])

    def reborn(name: PeerId) -> PeerHost:
        starts[name] += 1
        start = starts[name]
        return host_of(experiment, directory, players[name], world, engine, start=start)

    world = World(
        run_name=experiment.name,
        founders=founder_count(experiment, taken),
        options=Manifest(experiment.explicit),
        seed=settings.run.seed,
        timing=timings.default,
        relays=relay_count(experiment),
        timings=timings,
        script=Script(
            experiment.faults,
            reborn,
            () if experiment.relay is None else (experiment.relay.name,),
        ),
    )
    relay = experiment.relay
    for name in players:
        if name not in late:
            world.add(reborn(name))
    board = Board.of(
        [seat.name for seat in taken],
        settings.run.rounds,
        relay=relay.name if relay is not None else None,
    )
    with closing(world), progress.status("simulating") as status:
        world.run(lambda: status.update(_progress_text(world)))
        _tell_ends(board, world)
    return board


def _tell_ends(board: Board, world: World) -> None:
    """Say how each of them ended, as a launch would have heard it."""
    for name, state in board.peers.items():
        host = world.hosts.get(peer_id(name))
        if host is None:
            state.phase = "away"
        elif host.was_killed:
            state.phase = "killed"
        elif host.over is None:
            state.phase = "frozen" if host.me in world.frozen else "stopped"
        elif host.over.code:
            state.phase = "failed"
            board.failures.append(Failure(name, host.over.code, host.over.reason))
        else:
            state.phase = "done"


def host_of(
    experiment: Experiment,
    directory: RunDirectory,
    seat: Seat | RelayTable,
    world: World,
    engine: Engine,
    *,
    start: int = 1,
    sync: bool = False,
) -> PeerHost:
    """Build a peer, for the first time or again.

    Args:
        experiment: what is played.
        directory: of the run.
        seat: whose turn it is.
        world: where it will live.
        engine: runs its trainer.
        start: which process of this peer it is; from 2 on it goes on from its run directory.
        sync: sync its journal; a simulation has no need to, as its power never fails.
    """
    data = seat.data if isinstance(seat, Seat) else None
    facts = shard_facts(data) if data is not None else None
    role = Role.PEER if data is not None else Role.RELAY
    me = peer_id(seat.name)
    consent = {**experiment.consent, FAULTS: agreed(experiment.faults)}
    wishes = wishes_of(consent, facts) if facts is not None else typed(consent)
    join = Join(
        version=WIRE_VERSION,
        token=world.coordinator.join.token,
        name=me,
        role=role.value,
        instance=key_of(me, f"instance {start}")[:8],
        address=f"tcp://{me}:1",
        sign_key=sign_public(key_of(me, "sign")),
        wishes=tuple(Option(key, value) for key, value in sorted(wishes.items())),
    )
    plan = Plan(
        me=me,
        role=role,
        explicit=wishes,
        data=str(data.absolute()) if data is not None else "",
        device=seat.gpu,
        out=str(directory.root.absolute()),
        alone=experiment.alone,
        attack=str(seat.attack or "") if isinstance(seat, Seat) else "",
        faults=experiment.faults,
        resume=start > 1,
    )
    sign_key = world.coordinator.join.sign_key
    cached = find_view(directory.root, me, sign_key).signed if plan.resume else None
    membership = Membership(join, sign_key=sign_key, where="here", cached=cached)
    return PeerHost(
        Node(plan, membership),
        sign_secret=key_of(me, "sign"),
        fabric=world,
        engine=engine,
        timing=world.timings.of(me),
        chronicle=Chronicle(Silence(), peer=me, facts=facts, clock_s=world.now_s, sync=sync),
        sync=sync,
    )


def _timings(experiment: Experiment, directory: RunDirectory, seat: Seat) -> TimingTable:
    """The durations of the file; with `calibrate`, a step's is measured, and written down."""
    table = experiment.timing
    if not table.calibrate:
        return table
    from peer.simulation.calibrate import step_seconds  # noqa: PLC0415 - it loads torch
    from peer.simulation.here import one_thread  # noqa: PLC0415 - as above

    facts = shard_facts(seat.data)
    settings = complete({**experiment.explicit, **wishes_of(experiment.consent, facts)})
    with one_thread(), TemporaryDirectory() as scratch:
        prepare = Prepare(
            peer=seat.name,
            role=Role.PEER,
            run=bytes(16),
            settings=tuple(Setting(key, value) for key, value in sorted(settings.items())),
            data=str(seat.data.absolute()),
            device="cpu" if seat.gpu == "cpu" else seat.gpu,
            directory=scratch,
        )
        table = table.with_step_s(step_seconds(prepare))
    found = asdict(table.default) | {"peers": {n: asdict(own) for n, own in table.peers.items()}}
    with replacing(directory.timing) as file:
        file.write(json.dumps(found, indent=1).encode() + b"\n")
    return table


def _progress_text(world: World) -> str:
    """How far the slowest and the fastest are."""
    rounds = [host.node.machine.round_no for host in world.hosts.values() if host.node.machine]
    over = sum(host.over is not None for host in world.hosts.values())
    low, high = (min(rounds), max(rounds)) if rounds else (0, 0)
    where = f"round {low}" if low == high else f"rounds {low} to {high}"
    return (
        f"{world.now_s():.1f} s of virtual time, {where}, {over} of {len(world.hosts)} peers over"
    )


@contextmanager
def _engine(workers: int) -> Iterator[Engine]:
    if workers > 1:
        with closing(Workers(workers)) as engine:
            yield engine
        return
    from peer.simulation.here import InProcess, one_thread  # noqa: PLC0415 - it loads torch

    with closing(InProcess()) as here, one_thread():
        yield here

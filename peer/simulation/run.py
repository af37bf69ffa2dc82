"""A simulation from start to end: as a launch, on virtual time and in one process."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from peer.chronicle import Chronicle
from peer.data import shard_facts
from peer.display import Silence
from peer.experiment import Experiment, RelayTable
from peer.launch.board import Board, Failure
from peer.launch.directory import RunDirectory
from peer.launch.plan import Seat
from peer.launch.report import report
from peer.launch.stage import set_stage, tell_failures
from peer.node import Node, Plan
from peer.roles import Role
from peer.settings import typed
from peer.simulation.coordinator_host import key_of
from peer.simulation.engine import Engine, InProcess
from peer.simulation.peer_host import PeerHost
from peer.simulation.timing import Timing
from peer.simulation.world import World
from peer.start import wishes_of
from protocol.ids import peer_id
from protocol.manifest import Manifest
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, Join, Option
from protocol.wire.signing import sign_public

__all__ = ["host_of", "simulate"]


@dataclass(frozen=True, slots=True)
class Consoles:
    """Progress is for a person, the table for whoever reads the output."""

    progress: Console
    result: Console


def simulate(experiment: Experiment, out: Path, consoles: Consoles, *, force: bool) -> int:
    """Play an experiment on virtual time and leave its results in `out`, as a launch does.

    Returns:
        The exit code: 0 when every peer has finished; 2 or 1 when one has failed by an operator's
        fault or ours.

    Raises:
        OperatorError: the run directory, the data or the peers are not fit to start.
    """
    stage = set_stage(experiment, out, force=force)
    directory = stage.directory
    directory.forget_keys()
    engine = InProcess()
    with closing(engine):
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
    world = World(
        run_name=experiment.name,
        founders=experiment.founders or len(taken),
        options=Manifest(experiment.explicit),
        seed=settings.run.seed,
        timing=Timing(),
        relays=0 if experiment.relay is None else 1,
    )
    relay = experiment.relay
    for seat in taken:
        world.add(host_of(experiment, directory, seat, world, engine))
    if relay is not None:
        world.add(host_of(experiment, directory, relay, world, engine))
    board = Board.of(
        [seat.name for seat in taken],
        settings.run.rounds,
        relay=relay.name if relay is not None else None,
    )
    with one_thread(), progress.status("simulating") as status:
        world.run(lambda: status.update(_progress_text(world)))
    for name, host in world.hosts.items():
        if host.over is not None and host.over.code:
            board.failures.append(Failure(name, host.over.code, host.over.reason))
    return board


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
    consent = experiment.consent
    wishes = wishes_of(consent, facts) if facts is not None else typed(consent)
    join = Join(
        version=WIRE_VERSION,
        token=world.coordinator.join.token,
        name=me,
        role=role.value,
        instance=key_of(me, f"instance {start}")[:8],
        address=f"tcp://{me}:{start}",
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
    membership = Membership(join, sign_key=world.coordinator.join.sign_key, where="here")
    return PeerHost(
        Node(plan, membership),
        sign_secret=key_of(me, "sign"),
        fabric=world,
        engine=engine,
        timing=world.timing,
        chronicle=Chronicle(Silence(), peer=me, facts=facts),
        sync=sync,
    )


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
def one_thread() -> Iterator[None]:
    """Compute with one thread, as a launched peer does where cores are shared: equal bytes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

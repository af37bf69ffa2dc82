"""Simulated runs in which one peer is killed between two steps to its disk, and goes on.

Nothing of the killed process survives but its run directory.
"""

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from peer.durable import watched
from peer.experiment import Experiment, RelayTable, load_experiment
from peer.launch.directory import RunDirectory
from peer.launch.plan import Seat
from peer.launch.stage import set_stage
from peer.simulation.here import InProcess, one_thread
from peer.simulation.run import host_of
from peer.simulation.timing import Timing
from peer.simulation.world import World
from protocol.ids import PeerId
from protocol.manifest import Manifest
from tests.experiments import small

__all__ = ["RELAY", "VICTIM", "Play", "play"]

VICTIM, RELAY = PeerId("shard1"), PeerId("relay")
RESTART_S = 2.0  # of virtual time, until a killed peer is there again


class _Died(BaseException):
    """The process ended here; as after SIGKILL, nothing of it is carried out any more."""


@dataclass
class _Doom:
    """Counts one peer's steps to the disk and ends it before one of them."""

    folder: Path
    at: int
    steps: list[str] = field(default_factory=list)
    is_over: bool = False

    def __call__(self, what: str, path: Path) -> None:
        if not path.is_relative_to(self.folder):
            return
        self.steps.append(f"{what} {path.relative_to(self.folder)}")
        if not self.is_over and len(self.steps) == self.at:
            self.is_over = True
            raise _Died


@dataclass(frozen=True)
class Play:
    root: Path
    victim: PeerId
    steps: tuple[str, ...]  # those of the victim
    killed: bool


def play(
    folder: Path, *, method: str, rounds: int = 3, kill_at: int = 0, victim: PeerId = VICTIM
) -> Play:
    """Play a run, with the victim killed before its step of this number; 0 for never.

    A method may be followed by a codec: "craft, delta".
    """
    method, _, codec = method.partition(", ")
    folder.mkdir()
    file = folder / "crash.toml"
    relay = f'[relay]\nname = "{RELAY}"\n' if victim == RELAY else ""
    share = f'[share]\ncodec = "{codec or "fp32"}"\n'
    text = small(
        method,
        rounds=rounds,
        peers=3,
        partition="dirichlet:0.5",
        samples_per_class=2,
        pace="quorum = 1.0\nbound_s = 600.0",
        more=share + relay,
    )
    file.write_text(text)
    experiment = load_experiment(file, {"run.seed": 3})
    stage = set_stage(experiment, folder / "run", force=False, most=3)
    stage.directory.forget_keys()
    doom = _Doom(stage.directory.root.absolute() / victim, kill_at)
    with closing(InProcess()) as engine, watched(doom), one_thread():
        _play(experiment, stage.directory, stage.seats, engine, doom)
    return Play(stage.directory.root, victim, tuple(doom.steps), doom.is_over)


def _play(
    experiment: Experiment,
    directory: RunDirectory,
    seats: tuple[Seat, ...],
    engine: InProcess,
    doom: _Doom,
) -> None:
    taking_part: list[Seat | RelayTable] = [*seats]
    if experiment.relay is not None:
        taking_part.append(experiment.relay)
    world = World(
        run_name=experiment.name,
        founders=len(seats),
        options=Manifest(experiment.explicit),
        seed=experiment.settings.run.seed,
        timing=Timing(),
        relays=len(taking_part) - len(seats),
    )
    for seat in taking_part:
        world.add(host_of(experiment, directory, seat, world, engine, sync=True))
    try:
        world.run(lambda: None)
    except _Died:
        name = PeerId(doom.folder.name)
        victim = world.hosts[name]
        victim.kill()
        (seat,) = (seat for seat in taking_part if seat.name == name)
        again = host_of(experiment, directory, seat, world, engine, start=2, sync=True)
        world.later(RESTART_S, lambda: world.add(again))
        while world.hosts[name] is victim and world.step():
            pass
        world.run(lambda: None)
    codes = {name: host.over.code for name, host in world.hosts.items() if host.over is not None}
    assert codes == dict.fromkeys(world.hosts, 0), [h.over for h in world.hosts.values()]

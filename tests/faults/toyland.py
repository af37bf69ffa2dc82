"""Whole simulated runs under faults whose peers learn four numbers: fifty seeds are cheap.

World, nodes, links, directory, shelf, codec and journal are the real ones; only what a trainer
computes is a toy. After every event each peer is held to the rule that it never waits for nothing.
"""

import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from peer.admission import first_unfinite
from peer.cached import find_view
from peer.chronicle import Chronicle
from peer.data import ShardFacts, shard_facts
from peer.display import Silence
from peer.exchange import Origin, read_contribution, sections_of
from peer.faults.plan import agreed, draw
from peer.faults.reading import read_faults
from peer.faults.table import Fault, late_names
from peer.ledger import EVENTS, Event, read_events
from peer.machine import Phase
from peer.memory import Memory, read_memory
from peer.node import Node, Plan
from peer.options.fields import Value
from peer.publishing import Shelving, remembered
from peer.roles import Exchange, Role
from peer.settings import FAULTS, complete
from peer.simulation.coordinator_host import key_of
from peer.simulation.engine import Pending
from peer.simulation.peer_host import PeerHost
from peer.simulation.script import Script
from peer.simulation.timing import Timing
from peer.simulation.world import World
from peer.start import wishes_of
from peer.work import (
    Command,
    Evaluate,
    Evaluated,
    Inspect,
    Inspected,
    Mix,
    MixDone,
    Prepare,
    Prepared,
    Publish,
    Published,
    Reply,
    Score,
    Train,
    TrainDone,
)
from protocol.ids import PeerId
from protocol.manifest import Manifest
from protocol.params import Params
from protocol.round import Trained
from protocol.tensors import spec_body
from protocol.wire.layout import schema_digest
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, Join, Option
from protocol.wire.signing import sign_public
from tests.unit.training.classroom import write_digits

__all__ = ["NAMES", "Story", "crowd", "tell"]

NAMES = tuple(map(PeerId, "abcdef"))
POISONER = PeerId("f")  # every third of its results is not a number
TOY = Trained(params={"w": torch.zeros(4)}, num_examples=1, num_steps=1)
PHASES_AT_WORK = {Phase.MIX, Phase.TRAIN, Phase.EVALUATE, Phase.PUBLISH}
TIMING = Timing(prepare_s=1.0, step_s=0.5)


@dataclass
class _Mind:
    """What a toy trainer remembers."""

    order: Prepare
    shelving: Shelving
    admitted: set[bytes]  # by any process of this peer
    point: Params = field(default_factory=lambda: dict(TOY.params))

    def publish(self, round_no: int, kept: int) -> Published:
        """Write what is served, and what another process goes on from."""
        me, directory = PeerId(self.order.peer), Path(self.order.directory)
        spoilt = me == POISONER and round_no % 3 == 0
        point = {"w": self.point["w"] * float("nan")} if spoilt else self.point
        origin = Origin(run=self.order.run, sender=me, round_no=round_no, base=b"", degree=1)
        published = self.shelving.publish(origin, replace(TOY, params=point), kept=kept)
        trained = replace(TOY, params=self.point)
        memory = Memory(round_no=round_no, trained=trained, states={}, norms={})
        return remembered(directory, published, memory, None)


class ToyEngine:
    """Means and small steps, drawn from seed, peer and round; it mixes what it has admitted."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._minds: dict[PeerId, _Mind] = {}
        self._admitted = defaultdict[PeerId, set[bytes]](set)
        self.refused = 0

    def submit(self, peer: PeerId, command: Command) -> Pending:
        reply = self._reply(peer, command)
        return lambda: reply

    def forget(self, peer: PeerId) -> None:
        self._minds.pop(peer, None)

    def close(self) -> None:
        self._minds.clear()

    def _reply(self, peer: PeerId, command: Command) -> Reply:
        if isinstance(command, Prepare):
            self._minds[peer] = _mind(command, self._admitted[peer])
            return _prepared()
        mind = self._minds[peer]
        match command:
            case Inspect(neighbour, snapshot):
                trained = read_contribution(snapshot).trained
                bad = first_unfinite(trained.params)
                self.refused += bad is not None
                if bad is None:
                    mind.admitted.add(snapshot.digest)
                return Inspected(neighbour, snapshot.digest, f"{bad} is not finite" if bad else "")
            case Mix():
                return self._mix(mind, command)
            case Train(round_no):
                step = draw(self._seed, peer, round_no) - 0.5
                mind.point = {"w": mind.point["w"] + step * torch.arange(1.0, 5.0)}
                return TrainDone(round_no, 2, 0.5, 0.0)
            case Evaluate(round_no):
                score = Score(0.5, 1.0, 0.5 + 0.4 * float(mind.point["w"][0].tanh()), 1.0)
                return Evaluated(round_no, score, score, score, "trained", 0.0)
            case Publish(round_no, _, kept):
                return mind.publish(round_no, kept)
            case _:
                raise AssertionError(f"no toy can {command}")

    def _mix(self, mind: _Mind, order: Mix) -> MixDone:
        points, weights = [mind.point["w"]], [1.0]
        for part in order.inputs:
            assert part.snapshot.digest in mind.admitted, "mixed what nobody has admitted"
            points.append(read_contribution(part.snapshot).trained.params["w"].clone())
            weights.append(part.freshness)
        shares = torch.tensor(weights) / sum(weights)
        mind.point = {"w": (torch.stack(points) * shares[:, None]).sum(dim=0)}
        assert first_unfinite(mind.point) is None
        return MixDone(order.round_no, (), (), 0.0)


def _mind(order: Prepare, admitted: set[bytes]) -> _Mind:
    """A fresh one, or as an earlier process of this peer has left it."""
    directory = Path(order.directory)
    if not order.memory:
        return _Mind(order, Shelving(directory), admitted)
    memory = read_memory(directory, order.memory, torch.device("cpu"))
    shelving = Shelving(directory, newest=memory.round_no)
    return _Mind(order, shelving, admitted, memory.trained.params)


@cache
def _prepared() -> Prepared:
    specs = spec_body(sections_of(TOY))
    schema = schema_digest(specs)
    return Prepared(
        schema=schema,
        coded=schema,
        init=b"i" * 32,
        shared=specs,
        exchange=Exchange.NEIGHBOURS,
        num_parameters=4,
        num_examples=64,
        class_counts=(1, 1),
        device="imagined",
    )


class ToyWorld(World):
    """Looks at each peer after every event that befell it."""

    def when_awake(self, host: PeerHost, event: Callable[[], None]) -> None:
        super().when_awake(host, event)
        machine = host.node.machine
        if host.over is not None or machine is None or host.me in self._frozen:
            return
        if machine.phase in PHASES_AT_WORK:
            assert host._orders, f"{host.me} is to {machine.phase}, and nobody does"
        if machine.phase in {Phase.COLLECT, Phase.DRAIN}:
            assert "machine" in host.node._wakes, f"{host.me} never looks again"


@dataclass(frozen=True)
class Story:
    """What came of a run."""

    virtual_s: float
    ends: Mapping[PeerId, tuple[int, str]]  # exit code and reason, of those who have ended
    events: Mapping[PeerId, tuple[Event, ...]]
    transcript: Mapping[PeerId, bytes]  # events.jsonl as it lies there
    refused: int

    def starts(self, name: str) -> list[Event]:
        """What each process of this peer said of itself."""
        return [event for event in self.events[PeerId(name)] if event.name == "started"]

    def rounds(self, name: str) -> dict[int, Event]:
        events = self.events[PeerId(name)]
        return {int(str(e.fields["round"])): e for e in events if e.name == "round"}


@cache
def _shard() -> tuple[Path, ShardFacts]:
    path = write_digits(Path(mkdtemp()) / "toy.npz", first=0, num=64)
    return path, shard_facts(path)


def tell(folder: Path, text: str, seed: int, *, rounds: int = 8, **options: Value) -> Story:
    """Play a run under the faults of this text from beginning to end."""
    faults = read_faults(tomllib.loads(text).get("fault", []), names=NAMES)
    given: dict[str, Value] = {"run.seed": seed, "run.rounds": rounds, "method": "gossip"}
    given |= {key.replace("__", "."): value for key, value in options.items()}
    whole = complete(given)
    late, engine, starts = late_names(faults), ToyEngine(seed), defaultdict[PeerId, int](int)

    def reborn(name: PeerId) -> PeerHost:
        starts[name] += 1
        return _host(folder, name, world, engine, faults, starts[name])

    world = ToyWorld(
        run_name="toyland",
        founders=len(NAMES) - len(late),
        options=Manifest({key: whole[key] for key in given}),
        seed=seed,
        timing=TIMING,
        script=Script(faults, reborn),
    )
    for name in NAMES:
        if name not in late:
            world.add(reborn(name))
    with closing(world):
        world.run(lambda: None)
        ends = {n: (h.over.code, h.over.reason) for n, h in world.hosts.items() if h.over}
    paths = {name: folder / name / EVENTS for name in world.hosts}
    return Story(
        virtual_s=world.now_s(),
        ends=ends,
        events={name: read_events(path) for name, path in paths.items()},
        transcript={name: path.read_bytes() for name, path in paths.items()},
        refused=engine.refused,
    )


def crowd(folder: Path, num_peers: int, *, rounds: int = 1) -> World:
    """A world of so many peers without faults, before its first instant."""
    whole = complete({"run.rounds": rounds, "run.topology": "k-regular:4", "method": "gossip"})
    world = World(
        run_name="crowd",
        founders=num_peers,
        options=Manifest({key: whole[key] for key in ("run.rounds", "run.topology", "method")}),
        seed=0,
        timing=TIMING,
    )
    engine = ToyEngine(0)
    for number in range(num_peers):
        world.add(_host(folder, PeerId(f"p{number:03d}"), world, engine, (), 1))
    return world


def _host(
    folder: Path,
    me: PeerId,
    world: World,
    engine: ToyEngine,
    faults: tuple[Fault, ...],
    start: int,
) -> PeerHost:
    shard, facts = _shard()
    wishes = wishes_of({FAULTS: agreed(faults)}, facts)
    coordinator = world.coordinator.join
    join = Join(
        version=WIRE_VERSION,
        token=coordinator.token,
        name=me,
        role=Role.PEER.value,
        instance=key_of(me, f"instance {start}")[:8],
        address=f"tcp://{me}:1",
        sign_key=sign_public(key_of(me, "sign")),
        wishes=tuple(Option(key, value) for key, value in sorted(wishes.items())),
    )
    plan = Plan(
        me=me,
        role=Role.PEER,
        explicit=wishes,
        data=str(shard),
        device="cpu",
        out=str(folder),
        alone=False,
        faults=faults,
        resume=start > 1,
    )
    sign_key = coordinator.sign_key
    cached = find_view(folder, me, sign_key).signed if plan.resume else None
    return PeerHost(
        Node(plan, Membership(join, sign_key=sign_key, where="here", cached=cached)),
        sign_secret=key_of(me, "sign"),
        fabric=world,
        engine=engine,
        timing=TIMING,
        chronicle=Chronicle(Silence(), peer=me, facts=facts, clock_s=world.now_s),
    )

"""One node of a valley: the real node and shelf, and a trainer that answers after a while."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from peer.effects import (
    Act,
    Compared,
    Dial,
    Fetch,
    Goodbye,
    HangUp,
    Happened,
    Keep,
    Lobby,
    Members,
    Open,
    Order,
    Over,
    Record,
    Say,
    SayTo,
    Serve,
    Started,
    Tell,
)
from peer.machine import Phase
from peer.node import Node
from peer.record import RoundRecord
from peer.roles import Exchange
from peer.work import (
    Alone,
    AloneDone,
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
    Quit,
    Reply,
    Score,
    SnapshotRef,
    Train,
    TrainDone,
    Working,
)
from protocol.errors import RemoteProtocolError
from protocol.ids import PeerId
from protocol.wire import shelf as shelves
from protocol.wire.codec import PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.layout import schema_digest
from protocol.wire.link import WakeAt
from protocol.wire.messages import Epoch, SignedView
from protocol.wire.shelf import Shelf, Status
from tests.unit.machine.stage import manifest_of

SCORE = Score(0.5, 1.0, 0.5, 1.0)
PREPARED = Prepared(
    schema=schema_digest(()),
    coded=schema_digest(()),
    init=b"i" * 32,
    shared=(),
    exchange=Exchange.NEIGHBOURS,
    num_parameters=1,
    num_examples=1,
    class_counts=(1, 1),
    device="imagined",
)
STEP_S = 0.05  # of everything but training
PHASES_AT_WORK = {Phase.MIX, Phase.TRAIN, Phase.EVALUATE, Phase.PUBLISH}


def secret_of(name: str) -> bytes:
    """What a node signs with."""
    return name.encode().ljust(32)


class Ways(Protocol):
    """What a node sees of the valley."""

    now_s: float

    def later(self, dweller: "Dweller", delay_s: float, acts_of: "Event") -> None: ...

    def to_coordinator(self, dweller: "Dweller", header: bytes) -> None: ...

    def dial(self, dweller: "Dweller", name: PeerId, address: str) -> None: ...

    def hang_up(self, dweller: "Dweller", name: PeerId) -> None: ...

    def ask(self, dweller: "Dweller", name: PeerId, header: bytes) -> None: ...

    def answer(self, dweller: "Dweller", route: bytes, header: bytes) -> None: ...

    def pull(self, dweller: "Dweller", fetch: Fetch) -> None: ...


class Event(Protocol):
    def __call__(self, node: Node, now_s: float) -> Sequence[Act]: ...


@dataclass(eq=False)
class Dweller:
    node: Node
    ways: Ways
    address: str
    train_s: float
    is_alive: bool = True
    over: Over | None = None
    records: dict[int, RoundRecord] = field(default_factory=dict)
    told: list[Happened] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    names: frozenset[PeerId] = frozenset()  # who may connect
    offered: set[bytes] = field(default_factory=set)
    shelf: Shelf | None = None
    view: tuple[Epoch, SignedView] | None = None
    run: bytes = b""
    prepared: Reply = PREPARED  # what its trainer says to Prepare, and after how long
    prepare_s: float = STEP_S
    ordered: list[Command] = field(default_factory=list)
    orders: int = 0  # under way at the trainer
    busy_until_s: float = 0.0

    @property
    def name(self) -> PeerId:
        return self.node.plan.me

    @property
    def plays(self) -> bool:
        return self.is_alive and self.over is None

    def heard(self, event: str) -> list[tuple[PeerId | None, str]]:
        return [(h.peer, h.reason) for h in self.told if h.event == event]

    def feed(self, acts: Sequence[Act]) -> None:
        """Carry out what the node said, and see that it still waits for something."""
        for act in acts:
            self._do(act)
        self._check()

    def asked(self, route: bytes, name: PeerId, header: bytes) -> None:
        if self.shelf is None:
            return
        try:
            self._deliver(self.shelf.receive(route, name, PEER.decode(header), self.ways.now_s))
        except RemoteProtocolError:
            self.shelf.forget(name)

    def _check(self) -> None:
        """Hold the node to the rule that it never waits for nothing."""
        machine = self.node.machine
        if not self.plays:
            return
        assert self.node.wake_at_s is not None or self.orders
        if machine is None or self.node.phase == "alone":
            return
        if machine.phase in PHASES_AT_WORK:
            assert self.orders, f"{self.name} is to {machine.phase}, and nobody does"
        if machine.phase in {Phase.COLLECT, Phase.DRAIN}:
            assert "machine" in self.node._wakes, f"{self.name} never looks again"

    def _do(self, act: Act) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each kind of act
        match act:
            case Say(header):
                self.ways.to_coordinator(self, header)
            case SayTo(name, header):
                self.ways.ask(self, name, header)
            case Dial(name, address):
                self.ways.dial(self, name, address)
            case Members(names, epoch, signed):
                self.names = frozenset(names.values())
                self.view = epoch, signed
                if self.shelf is not None:
                    self.shelf.view(epoch, signed)
            case HangUp(name):
                self.ways.hang_up(self, name)
            case Open(run, schema):
                secret = secret_of(self.name)
                self.run = run
                self.shelf = Shelf(run=run, name=self.name, schema=schema, sign_secret=secret)
                if self.view is not None:
                    self.shelf.view(*self.view)
            case Tell(round_no, phase, fraction, eta_s):
                if self.shelf is not None:
                    self.shelf.status(Status(round_no, phase, fraction, eta_s))
            case Serve(snapshot, round_no):
                self.offered.add(snapshot.digest)
                if self.shelf is not None:
                    self._deliver(self.shelf.publish(round_no, snapshot.manifest))
            case Fetch():
                self.ways.pull(self, act)
            case Order(command):
                self._order(command)
            case Record(record):
                self.records[record.round_no] = record
            case Keep(_entry, then):
                for later in then:
                    self._do(later)
            case Happened():
                self.told.append(act)
            case Compared(done):
                self.compared.append(done.solver)
            case Goodbye(reason):
                if self.shelf is not None:
                    self._deliver(self.shelf.leave(reason))
                self.shelf = None
            case Over():
                self.over = self.over or act
            case Started() | Lobby():
                pass
            case _:
                assert_never(act)

    def _deliver(self, effects: Sequence[shelves.Effect]) -> None:
        for effect in effects:
            match effect:
                case shelves.Reply(route, message):
                    self.ways.answer(self, route, PEER.encode(message))
                case shelves.PeerDone(peer):
                    self.feed(self.node.peer_done(peer, self.ways.now_s))
                case WakeAt(at_s):
                    self.ways.later(self, at_s - self.ways.now_s, self._remind)

    def _remind(self, node: Node, now_s: float) -> Sequence[Act]:
        if self.shelf is not None:
            self._deliver(self.shelf.wake(now_s))
        return ()

    # -- the trainer ----------------------------------------------------------------------------

    def _order(self, command: Command) -> None:
        if isinstance(command, Quit):
            return
        begins_s = max(self.ways.now_s, self.busy_until_s)
        self.ordered.append(command)
        took_s = self.train_s if isinstance(command, Train | Alone) else STEP_S
        if isinstance(command, Prepare):
            took_s = self.prepare_s
        self.busy_until_s = begins_s + took_s
        self.orders += 1
        if isinstance(command, Train):
            for second in range(1, int(took_s)):
                news = Working("train", command.round_no, second / took_s, took_s - second)
                at_s = begins_s + second
                self.ways.later(self, at_s - self.ways.now_s, lambda n, s, w=news: n.replied(w, s))
        answer = self._answer(command)

        def answered(node: Node, now_s: float) -> Sequence[Act]:
            self.orders -= 1
            return node.replied(answer, now_s)

        self.ways.later(self, self.busy_until_s - self.ways.now_s, answered)

    def _answer(self, command: Command) -> Reply:
        match command:
            case Prepare():
                return self.prepared
            case Inspect(neighbour, snapshot):
                return Inspected(neighbour, snapshot.digest, "")
            case Mix(round_no):
                return MixDone(round_no, (), (), 0.0)
            case Train(round_no):
                return TrainDone(round_no, 1, 0.5, self.train_s)
            case Evaluate(round_no):
                return Evaluated(round_no, SCORE, SCORE, SCORE, "trained", 0.0)
            case Publish(round_no):
                return Published(round_no, self._snapshot(round_no), bytes(32))
            case Alone(solver):
                return AloneDone(solver, SCORE, self.train_s)
            case _:
                raise AssertionError(f"no imagined trainer can {command}")

    def _snapshot(self, round_no: int) -> SnapshotRef:
        manifest = encode_document(replace(manifest_of(self.name, round_no), run=self.run))
        return SnapshotRef(manifest, digest(manifest), f"/served/{round_no}", 0)

"""One simulated peer: its node and shelf, fed by the world; its trainer, run by the engine.

The shell of virtual time: where runtime.py and the data plane move bytes, this moves values. It
decides nothing about rounds.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from peer.chronicle import Chronicle
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
from peer.entries import Entry, Past
from peer.journal import Journal
from peer.machine import Phase
from peer.node import Node
from peer.simulation.coordinator_host import key_of
from peer.simulation.engine import Engine, Pending
from peer.simulation.fabric import Fabric
from peer.simulation.timing import Timing
from peer.takeup import order_from, take_up
from peer.work import (
    AloneDone,
    Command,
    Evaluated,
    MixDone,
    Prepare,
    Quit,
    Reply,
    SnapshotRef,
    TrainDone,
)
from protocol.errors import RemoteProtocolError
from protocol.ids import PeerId
from protocol.wire.codec import PEER, decode_document, encode_document
from protocol.wire.layout import Layout
from protocol.wire.link import WakeAt
from protocol.wire.messages import Epoch, Part, SignedView, SnapshotManifest
from protocol.wire.shelf import Effect as ShelfEffect
from protocol.wire.shelf import PeerDone, Shelf, Status
from protocol.wire.shelf import Reply as Answer

__all__ = ["PeerHost"]


class PeerHost:
    def __init__(
        self,
        node: Node,
        *,
        sign_secret: bytes,
        fabric: Fabric,
        engine: Engine,
        timing: Timing,
        chronicle: Chronicle,
        sync: bool = False,
    ) -> None:
        """Put a peer together.

        Args:
            node: the peer.
            sign_secret: with which it signs its snapshots.
            fabric: the world that it lives in.
            engine: runs its trainer.
            timing: how long things take.
            chronicle: what is told of it.
            sync: have its journal synced to the disk, as a real peer does.
        """
        self.node = node
        self.me = node.plan.me
        self.over: Over | None = None
        self.was_killed = False
        self._sign_secret = sign_secret
        self._fabric = fabric
        self._engine = engine
        self._timing = timing
        self._chronicle = chronicle
        self._sync = sync
        self._shelf: Shelf | None = None
        self._view: tuple[Epoch, SignedView] | None = None
        self._names: Mapping[bytes, PeerId] = {}  # of every key that is admitted
        self._kept: dict[Part, list[bytes]] = {}  # digests of what is offered, oldest first
        self._bodies: dict[bytes, SnapshotRef] = {}  # what this peer serves, by digest
        self._steps = 1  # of one round's training
        self._directory = Path()
        self._journal: Journal | None = None
        self._past = Past()  # where an earlier process of this peer was
        self._orders = 0  # under way at the trainer
        self._busy_until_s = 0.0  # the trainer does one thing after another
        self._woken_at_s = float("inf")  # the earliest wake that is on the agenda
        self._remind_at_s = float("inf")  # the same for the shelf

    @property
    def waits(self) -> bool:
        """Something is to happen here: a wake, or an answer of the trainer."""
        return self.over is not None or self._orders > 0 or self.node.wake_at_s is not None

    def kill(self) -> None:
        """It is gone between two instants, and has told nobody: its run directory stays as it is.

        A new host with `resume` in its plan goes on from there. A process has another instance and
        address than the one before it.
        """
        self.over = self.over or Over(-signal.SIGKILL, "killed")
        self.was_killed = True
        self._shelf = None
        if self._journal is not None and self._view is not None:
            self._journal.view(self._view[1])  # as a real one has done all the while
        self._chronicle.abandon()
        self._let_go()

    def _let_go(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._engine.forget(self.me)

    @property
    def is_open(self) -> bool:
        """Does it answer who connects?"""
        return self._shelf is not None

    # -- what happens ---------------------------------------------------------------------------

    def start(self) -> None:
        self.feed(self.node.start(self._fabric.now_s()))

    def feed(self, acts: Sequence[Act]) -> None:
        """Carry out what the node said, and be woken when it asks for it."""
        for act in acts:
            self._do(act)
        at_s = self.node.wake_at_s
        if self.over is None and at_s is not None and at_s < self._woken_at_s:
            self._woken_at_s = at_s
            self._later(max(0.0, at_s - self._fabric.now_s()), self._wake)

    def _later(self, delay_s: float, event: Callable[[], None]) -> None:
        self._fabric.later(delay_s, lambda: self._fabric.when_awake(self, event))

    def _wake(self) -> None:
        self._woken_at_s = float("inf")
        if self.over is None:
            self.feed(self.node.wake(self._fabric.now_s()))

    def asked(self, asker: PeerId, header: bytes) -> None:
        """A message of a peer that pulls from us."""
        if self._shelf is None or not self.admits(asker):
            return
        try:
            message = PEER.decode(header)
            answers = self._shelf.receive(asker.encode(), asker, message, self._fabric.now_s())
        except RemoteProtocolError:
            self._shelf.forget(asker)
            return
        self._reply(answers)

    def admits(self, asker: PeerId) -> bool:
        """May the holder of this peer's key connect, and be answered? As a real handshake asks."""
        return self._names.get(key_of(asker, "curve")) == asker

    def body_of(self, digest: bytes, asker: PeerId) -> SnapshotRef | None:
        """What is served to this peer under this digest now."""
        is_heard = self.over is None and self.admits(asker)
        return self._bodies.get(digest) if is_heard else None

    # -- what to do -----------------------------------------------------------------------------

    def _do(self, act: Act) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each kind of act
        match act:
            case Say(header):
                self._fabric.to_coordinator(self.me, header)
            case SayTo(name, header):
                self._fabric.ask(self.me, name, header)
            case Dial(name):
                self._fabric.dial(self.me, name)
            case HangUp():
                pass  # the node has let go of the link, and there is nothing below it
            case Members(names, epoch, signed):
                self._view = epoch, signed
                self._admit(names)
                if self._shelf is not None:
                    self._shelf.view(epoch, signed)
            case Open(run, schema):
                self._open(run, schema)
            case Tell():
                self._tell(act)
            case Serve():
                self._serve(act)
            case Fetch():
                self._fetch(act)
            case Order(command):
                self._order(command)
            case Started():
                self._started(act)
            case Lobby():
                self._chronicle.lobby(act)
            case Record(record):
                self._chronicle.round(record)
            case Keep(entry, then):
                self._keep(entry)
                for later in then:
                    self._do(later)
            case Happened():
                self._chronicle.happened(act)
            case Compared():
                self._chronicle.compared(act)
            case Goodbye(reason):
                if self._shelf is not None:
                    self._reply(self._shelf.leave(reason))
                self._shelf = None
            case Over(code, reason):
                self.over = self.over or act
                self._chronicle.over(code, reason)
                self._let_go()
            case _:
                assert_never(act)

    def _admit(self, names: Mapping[bytes, PeerId]) -> None:
        """Hear these from now on, and be done with who is no longer among them."""
        before, self._names = self._names, names
        if before is names or before.keys() <= names.keys():
            return
        for asker in sorted(before[key] for key in before.keys() - names.keys()):
            if self._shelf is not None:
                self._shelf.forget(asker)
            self._fabric.hang_up(self.me, asker)

    def _open(self, run: bytes, schema: bytes) -> None:
        self._shelf = Shelf(run=run, name=self.me, schema=schema, sign_secret=self._sign_secret)
        if self._view is not None:
            self._shelf.view(*self._view)
        self._fabric.opened(self.me)

    def _tell(self, tell: Tell) -> None:
        if self._shelf is not None:
            self._shelf.status(Status(tell.round_no, tell.phase, tell.fraction, tell.eta_s))
        if tell.phase == Phase.COLLECT and tell.fraction == 0.0:
            self._fabric.began_round(self.me, tell.round_no)

    def _started(self, act: Started) -> None:
        recipe = act.settings.recipe
        epochs = int(act.settings.flat.get("solver.epochs", 1))
        self._steps = epochs * -(-act.prepared.num_examples // recipe.train.batch_size)
        self._chronicle.started(act)

    def _serve(self, act: Serve) -> None:
        snapshot = act.snapshot
        manifest = decode_document(SnapshotManifest, snapshot.manifest)
        part, base = manifest.part, manifest.base
        offered = self._kept.setdefault(part, [])
        offered.append(snapshot.digest)
        for old in offered[: -act.kept]:
            Path(self._bodies.pop(old).path).unlink(missing_ok=True)
        del offered[: -act.kept]
        self._bodies[snapshot.digest] = self._held(snapshot)
        if self._shelf is not None:
            published = self._shelf.publish(
                act.round_no, snapshot.manifest, part, base, kept=act.kept
            )
            self._reply(published)

    def _held(self, snapshot: SnapshotRef) -> SnapshotRef:
        """The same file by a name of its own: trainers are ahead of time, and drop old ones."""
        folder = self._directory / "state" / "served"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{snapshot.digest.hex()}.safetensors"
        path.unlink(missing_ok=True)
        os.link(snapshot.path, path)
        return replace(snapshot, path=str(path))

    def _reply(self, answers: Sequence[ShelfEffect]) -> None:
        for answer in answers:
            match answer:
                case Answer(route, message):
                    self._fabric.answer(self.me, PeerId(route.decode()), PEER.encode(message))
                case PeerDone(peer):
                    self.feed(self.node.peer_done(peer, self._fabric.now_s()))
                case WakeAt(at_s) if at_s < self._remind_at_s:
                    self._remind_at_s = at_s
                    self._later(max(0.0, at_s - self._fabric.now_s()), self._remind)
                case WakeAt():
                    pass  # an earlier one is on the agenda, and will ask again

    def _remind(self) -> None:
        self._remind_at_s = float("inf")
        if self._shelf is not None:
            self._reply(self._shelf.wake(self._fabric.now_s()))

    def _fetch(self, fetch: Fetch) -> None:
        # A step that is carried out gives the bytes that its sender serves whole: only it travels.
        travels = fetch.manifest if fetch.onward is None else fetch.onward.step.manifest
        num_bytes = Layout.of(travels.tensors).body_bytes
        manifest = encode_document(fetch.manifest)
        inbox = self._directory / "state" / "inbox"
        kept = inbox / f"{fetch.neighbour}.{fetch.slot}.safetensors"

        coming = kept.with_suffix(".part")

        def begin(body: SnapshotRef | None, reason: str) -> None:
            if body is None:
                now_s = self._fabric.now_s()
                self.feed(self.node.pull_failed(fetch.neighbour, reason, now_s))
                return
            inbox.mkdir(parents=True, exist_ok=True)
            coming.unlink(missing_ok=True)
            os.link(body.path, coming)  # the same bytes, once on disk, for as long as we keep them
            snapshot = SnapshotRef(manifest, fetch.digest, str(kept), body.offset)
            self._fabric.carry(self.me, fetch.neighbour, num_bytes, lambda: done(snapshot), failed)

        def failed(reason: str) -> None:
            coming.unlink(missing_ok=True)
            self.feed(self.node.pull_failed(fetch.neighbour, reason, self._fabric.now_s()))

        def done(snapshot: SnapshotRef) -> None:
            coming.replace(kept)
            coming.unlink(
                missing_ok=True
            )  # to rename one name of a file to another one does nothing
            now_s = self._fabric.now_s()
            self.feed(self.node.progressed(fetch.neighbour, num_bytes, now_s))
            self.feed(self.node.pulled(fetch.neighbour, snapshot, now_s))

        self._fabric.pull(self.me, fetch.neighbour, fetch.digest, begin)

    # -- the trainer ----------------------------------------------------------------------------

    def _order(self, command: Command) -> None:
        """Begin it now; its answer comes when the virtual work is done, one after another."""
        if isinstance(command, Quit):
            return
        if isinstance(command, Prepare):
            if self._journal is None:
                self._begin(command)
            command = order_from(command, self._past)
        seconds = self._timing.work_s(command, num_steps=self._steps)
        seconds *= self._fabric.slowness(self.me)
        now_s = self._fabric.now_s()
        self._busy_until_s = max(self._busy_until_s, now_s) + seconds
        self._orders += 1
        pending = self._engine.submit(self.me, command)
        self._later(self._busy_until_s - now_s, lambda: self._answered(pending, seconds))

    def _begin(self, prepare: Prepare) -> None:
        """Open the run directory, and go on from what is there where that was asked for."""
        self._directory = Path(prepare.directory)
        plan = self.node.plan
        self._past = past = take_up(
            self._directory, prepare.run, resume=plan.resume, force=plan.force
        )
        self._chronicle.open(self._directory, prepare.run, past)
        self._journal = Journal(self._directory, past, sync=self._sync)
        self.node.recall(past)

    def _keep(self, entry: Entry) -> None:
        if self._journal is not None:
            self._chronicle.journalled(self._journal.write(entry))

    def _answered(self, pending: Pending, seconds: float) -> None:
        self._orders -= 1
        if self.over is None:
            reply = _timed(pending(), seconds)
            self.feed(self.node.replied(reply, self._fabric.now_s()))


def _timed(reply: Reply, seconds: float) -> Reply:
    """The same answer, with the virtual time that it took."""
    if isinstance(reply, TrainDone):
        return replace(reply, seconds=seconds, twin_seconds=0.0)  # a twin takes no virtual time
    if isinstance(reply, MixDone | Evaluated | AloneDone):
        return replace(reply, seconds=seconds)
    return reply

"""The loop of a running peer: it waits, feeds the node what happened, and carries out what it says.

One thread. It owns the control sockets and the pipe to the trainer; serving and pulling are threads
of the data plane. It decides nothing about rounds: whatever looks like a rule belongs
into the node.
"""

import logging
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import assert_never

from peer.chronicle import Chronicle, began_in
from peer.data import ShardFacts
from peer.dataplane.events import (
    Crashed,
    Event,
    Journalled,
    Misbehaved,
    PeerDone,
    Progressed,
    Pulled,
    PullFailed,
    Served,
    ShutOut,
)
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller
from peer.dataplane.server import Server
from peer.display import Display
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
from peer.entries import Finished, Past
from peer.faults.weather import PeerWeather
from peer.journal import Journal
from peer.node import Node
from peer.pulls import Pulls
from peer.refusals import Refusal, Refusals
from peer.scribe import Scribe
from peer.takeup import order_from, take_up
from peer.trainer_process import TrainerProcess
from peer.watch import now_of
from peer.work import Command, Prepare, Publish, Train
from protocol.clock import Clock, wall_s
from protocol.errors import KinfolkError, OperatorError, RefusedError
from protocol.ids import PeerId
from protocol.transport.base import Caller, CallerEvent, Pollable, Transport
from protocol.wire.messages import SignedView
from protocol.wire.shelf import Status

__all__ = ["Runtime", "Sockets"]

_log = logging.getLogger(__name__)

LOG = "peer.log"  # of the trainer, in the run directory
MESSAGES_PER_TURN = 64  # of one connection, before the others get theirs
SHOW_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """What a peer talks through."""

    transport: Transport
    coordinator: Caller
    server: Server
    puller: Puller
    events: Inbox[Event]  # what the threads of server and puller tell


class Runtime:
    def __init__(
        self,
        *,
        node: Node,
        facts: ShardFacts | None,
        sockets: Sockets,
        display: Display,
        clock: Clock,
        threads: int | None = None,
        weather: PeerWeather | None = None,
    ) -> None:
        """Put the parts together; all of them belong to the caller, who closes them."""
        self._weather = PeerWeather((), me=node.plan.me) if weather is None else weather
        self._node = node
        self._transport = transport = sockets.transport
        self._coordinator = sockets.coordinator
        self._server = sockets.server
        self._puller = sockets.puller
        self._events = sockets.events
        self._display = display
        self._clock = clock
        self._threads = threads
        self._chronicle = Chronicle(display, peer=node.plan.me, facts=facts)
        self._poller = transport.poller()
        self._interrupt = transport.wake()
        self._interrupted = ""
        self._callers: dict[PeerId, Caller] = {}
        self._where: dict[PeerId, tuple[str, bytes]] = {}  # address and key of each neighbour
        self._pulls = Pulls()
        self._trainer: TrainerProcess | None = None
        self._scribe: Scribe | None = None
        self._view: SignedView | None = None  # the newest
        self._unkept = 0  # finished rounds on their way into the journal
        self._held: Publish | None = None  # waits for them
        self._refusals = Refusals(refuse=self._refuse, tell=self._chronicle.happened)
        self._past = Past()  # where an earlier process of this peer was
        self._open = ExitStack()
        self._directory = Path()
        self._doing = Tell(0, "join", 0.0, 0.0)
        self._shown_s = float("-inf")
        self._over: Over | None = None

    def run(self) -> int:
        """Play the run to its end; the exit code.

        Raises:
            OperatorError: the run directory cannot be used, or somebody refused us.
            KinfolkError: the trainer failed by a fault of ours.
        """
        for item in (self._coordinator, self._events.wake, self._interrupt):
            self._poller.add(item)
        with self._on_signals(), self._open:
            try:
                self._carry_out(self._node.start(self._now_s()))
                while self._over is None:
                    self._turn()
                self._finish_journal()
            except Exception as error:
                self._break_off(error)
                raise
        return self._ended(self._over)

    def _finish_journal(self) -> None:
        """Nothing more will happen: let what waits for the journal be done."""
        if self._scribe is not None:
            scribe, self._scribe = self._scribe, None
            scribe.finish()
            self._hear_threads()

    def _turn(self) -> None:
        """Wait for something to happen, and let the node say what follows."""
        for item in self._poller.poll(self._patience_s()):
            if item is self._interrupt:
                self._interrupt.clear()
                self._carry_out(self._node.stop(self._interrupted, self._now_s()))
            elif item is self._coordinator:
                self._hear_coordinator()
            elif item is self._events.wake:
                self._hear_threads()
            elif self._trainer is not None and item == self._trainer.pipe.fileno():
                self._hear_trainer(self._trainer)
            else:
                self._hear_neighbour(item)
        self._carry_out(self._node.wake(self._now_s()))
        self._show()

    def _patience_s(self) -> float:
        wake_at_s = self._node.wake_at_s
        due_s = self._shown_s + SHOW_EVERY_S
        if wake_at_s is not None:
            due_s = min(due_s, wake_at_s)
        return max(0.0, due_s - self._now_s())

    def _now_s(self) -> float:
        return self._clock.now_s()

    # -- what happened ------------------------------------------------------------------------

    def _hear_coordinator(self) -> None:
        for message in _received(self._coordinator):
            now_s = self._now_s()
            if isinstance(message, bytes):
                self._carry_out(self._node.coordinator_said(message, now_s))
            elif message is CallerEvent.CONNECTED:
                self._carry_out(self._node.coordinator_connected(now_s))
            else:
                reason = _TROUBLE[message]
                self._carry_out(self._node.coordinator_disconnected(reason, now_s))

    def _hear_neighbour(self, item: Pollable) -> None:
        names = [name for name, caller in self._callers.items() if caller is item]
        if not names:
            return
        caller = self._callers[names[0]]
        for message in _received(caller):
            now_s = self._now_s()
            if isinstance(message, bytes):
                self._carry_out(self._node.link_said(names[0], message, now_s))
            elif message is CallerEvent.CONNECTED:
                self._carry_out(self._node.link_connected(names[0], now_s))
            else:
                self._carry_out(self._node.link_disconnected(names[0], now_s))

    def _hear_trainer(self, trainer: TrainerProcess) -> None:
        try:
            replies = trainer.replies()
        except EOFError:
            self._poller.discard(trainer.pipe.fileno())
            words = trainer.last_words()
            self._carry_out(self._node.trainer_ended(words, self._now_s()))
            return
        for reply in replies:
            self._carry_out(self._node.replied(reply, self._now_s()))

    def _hear_threads(self) -> None:  # noqa: C901, PLR0912 - one line for each kind of event
        for event in self._events.drain():
            now_s = self._now_s()
            match event:
                case PeerDone(peer):
                    self._carry_out(self._node.peer_done(peer, now_s))
                case Progressed(ticket, neighbour, num_bytes):
                    more = self._pulls.more(ticket, num_bytes)
                    self._carry_out(self._node.progressed(neighbour, more, now_s))
                case Pulled(ticket, neighbour, num_bytes):
                    rest, snapshot = self._pulls.finish(ticket, num_bytes)
                    if snapshot is not None:
                        self._carry_out(self._node.progressed(neighbour, rest, now_s))
                        self._carry_out(self._node.pulled(neighbour, snapshot, now_s))
                case PullFailed(ticket, neighbour, reason):
                    if self._pulls.drop(ticket):
                        self._carry_out(self._node.pull_failed(neighbour, reason, now_s))
                case Served(peer, num_bytes):
                    self._node.sent(peer, num_bytes)
                case Misbehaved(peer, reason):
                    _log.warning("peer=%s broke the protocol: %s", peer, reason)
                    self._chronicle.happened(Happened("misbehaved", peer, reason))
                case ShutOut(peer, key, reason):
                    self._refusals.add(Refusal(peer, key, reason, wall_s()))
                case Journalled():
                    self._journalled(event)
                case Crashed(thread, error):
                    _log.error("the %s thread ended", thread)
                    raise error
                case _:
                    assert_never(event)

    # -- what to do -----------------------------------------------------------------------------

    def _carry_out(self, acts: Sequence[Act]) -> None:
        for act in acts:
            self._do(act)

    def _do(self, act: Act) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each kind of act
        match act:
            case Say(header):
                self._coordinator.send(header)
            case SayTo(name, header):
                self._callers[name].send(header)
            case Dial(name, address, key):
                self._dial(name, address, key)
            case HangUp(name):
                self._hang_up(name)
            case Members(names, epoch, signed):
                self._server.members(names)
                self._weather.members(names)
                self._server.view(epoch, signed)
                self._view = signed
                if self._scribe is not None:
                    self._scribe.view(signed)
            case Open(run, schema):
                self._server.open(run, schema)
            case Tell():
                self._doing = act
                self._weather.plays(act.round_no, self._now_s())
                status = Status(act.round_no, act.phase, act.fraction, act.eta_s)
                self._server.status(status)
            case Serve():
                self._serve(act)
            case Fetch():
                self._fetch(act)
            case Order(command):
                self._order(command)
            case Started():
                self._chronicle.started(act)
            case Lobby():
                self._chronicle.lobby(act)
            case Record(record):
                self._chronicle.round(record)
            case Keep():
                self._keep(act)
            case Happened():
                self._chronicle.happened(act)
            case Compared():
                self._chronicle.compared(act)
            case Goodbye(reason):
                self._server.leave(reason)
            case Over():
                self._over = self._over or act
            case _:
                assert_never(act)

    def _hang_up(self, name: PeerId) -> None:
        if (old := self._callers.pop(name, None)) is not None:
            self._poller.discard(old)
            old.close()
            self._puller.hang_up(name)  # what it was sending from there will never be whole

    def _serve(self, act: Serve) -> None:
        self._server.publish(act.snapshot, act.round_no, act.kept)
        self._puller.hold(act.snapshot)

    def _refuse(self, keys: Iterable[bytes]) -> None:
        self._server.refuse(keys)

    def _dial(self, name: PeerId, address: str, key: bytes) -> None:
        self._hang_up(name)
        caller = self._transport.call(address, server_key=key)
        self._callers[name] = caller
        self._where[name] = (address, key)
        self._poller.add(caller)

    def _fetch(self, fetch: Fetch) -> None:
        inbox = self._directory / "state" / "inbox"
        inbox.mkdir(parents=True, exist_ok=True)
        self._puller.pull(self._pulls.order(fetch, inbox, *self._where[fetch.neighbour]))

    def _keep(self, keep: Keep) -> None:
        if self._scribe is not None:
            self._unkept += isinstance(keep.entry, Finished)
            self._scribe.keep(keep)

    def _journalled(self, done: Journalled) -> None:
        self._unkept -= isinstance(done.keep.entry, Finished)
        self._chronicle.journalled(done.trouble)
        self._carry_out(done.keep.then)
        if self._held is not None and not self._unkept:
            command, self._held = self._held, None
            self._order(command)

    def _order(self, command: Command) -> None:
        if isinstance(command, Prepare):
            if self._trainer is None:
                self._start_trainer(command)
            command = order_from(command, self._past)
        if isinstance(command, Train):
            command = replace(command, slowness=self._weather.slowness(self._now_s()))
        if isinstance(command, Publish) and self._unkept:
            self._held = command  # its files would take the place of what is not served yet
            return
        if self._trainer is not None:
            self._trainer.order(command)

    def _start_trainer(self, prepare: Prepare) -> None:
        """Make the run directory and start the process that will work in it."""
        self._directory = Path(prepare.directory)
        plan = self._node.plan
        self._past = past = take_up(
            self._directory, prepare.run, resume=plan.resume, force=plan.force
        )
        if (began_s := began_in(self._directory)) is not None:
            self._weather.began(self._now_s() - (wall_s() - began_s))
        self._chronicle.open(self._directory, prepare.run, past)
        self._node.recall(past)
        self._refusals.open(self._directory)
        journal = Journal(self._directory, past)
        self._scribe = self._open.enter_context(Scribe(journal, events=self._events))
        if self._view is not None:
            self._scribe.view(self._view)
        log = self._directory / LOG
        self._trainer = self._open.enter_context(TrainerProcess(log, threads=self._threads))
        self._poller.add(self._trainer.pipe.fileno())

    # -- showing, and the end -------------------------------------------------------------------

    def _show(self) -> None:
        now_s = self._now_s()
        if now_s < self._shown_s + SHOW_EVERY_S:
            return
        self._shown_s = now_s
        self._display.now(now_of(self._node, self._doing))

    @contextmanager
    def _on_signals(self) -> Iterator[None]:
        """Leave cleanly at the first signal to end; at the second, not even wait for a step.

        A terminal that goes away ends the run like the others, unless nohup has it ignored.
        """

        def interrupt(number: int, _frame: FrameType | None) -> None:
            if self._interrupted and self._trainer is not None:
                self._trainer.kill()
            self._interrupted = f"stopped by {signal.Signals(number).name}"
            self._interrupt.set()

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, interrupt) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _break_off(self, error: Exception) -> None:
        """Say goodbye though something failed here: nobody need wait for us to be silent."""
        code = 2 if isinstance(error, OperatorError | OSError) else 1
        self._carry_out(self._node.fail(str(error), code, self._now_s()))
        self._chronicle.over(code, str(error))

    def _ended(self, over: Over) -> int:
        self._chronicle.over(over.code, over.reason)
        if over.code == 2:
            raise RefusedError(over.reason)
        if over.code:
            log = f" ({self._directory / LOG} has more)" if self._trainer is not None else ""
            raise KinfolkError(f"{over.reason}{log}")
        self._display.line(f"{self._node.plan.me}: {over.reason}")
        return 0


_TROUBLE = {
    CallerEvent.DISCONNECTED: "the connection is refused or broke",
    CallerEvent.REFUSED: "it refused our key",
}


def _received(caller: Caller) -> Iterator[bytes | CallerEvent]:
    """What has arrived, up to one turn's worth; a payload has no place in this conversation."""
    for _ in range(MESSAGES_PER_TURN):
        message = caller.receive(_no_place)
        if message is None:
            return
        if not isinstance(message, tuple):
            yield message


def _no_place(_header: bytes) -> memoryview | None:
    return None

"""A whole peer but for its sockets and trainer: membership, links, rounds. Sans-IO.

Every method is an event with its instant; it returns what is to be done, in order. The shell asks
`wake_at_s` how long it may wait. Must not know sockets, files, threads, clocks or tensors.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from peer.census import census_of
from peer.effects import (
    Act,
    Compared,
    Dial,
    Effect,
    End,
    Farewell,
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
    Question,
    Record,
    Say,
    SayTo,
    Serve,
    Started,
    Tell,
    WakeAt,
)
from peer.entries import Past
from peer.faults.feasible import check_rounds
from peer.faults.plan import FaultPlan
from peer.faults.table import Fault, late_names
from peer.machine import Machine, Phase
from peer.options.fields import Value
from peer.roles import Role
from peer.settings import Settings, advised, complete
from peer.work import (
    Alone,
    AloneDone,
    Failed,
    Prepare,
    Prepared,
    Quit,
    Reply,
    Setting,
    SnapshotRef,
)
from protocol.errors import ConfigError, OperatorError, RemoteProtocolError
from protocol.ids import PeerId, RunId
from protocol.manifest import Manifest
from protocol.topology import check_carried
from protocol.wire import link as links
from protocol.wire import membership_effects as joining
from protocol.wire.codec import COORDINATOR, PEER
from protocol.wire.fields import as_text
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, Hello, Seen, SignedView, View

__all__ = ["Node", "Plan"]

# Keys of wakes; a neighbour's is its name in brackets.
_MEMBERSHIP, _MACHINE, _VIEWS = "coordinator", "machine", "views"
_VIEWS_EVERY_S = 5.0  # neighbours are asked for newer ones while the coordinator is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a person asked of this peer."""

    me: PeerId
    explicit: Mapping[str, Value]  # options that were typed, and what the data fix
    data: str  # path of the shard
    device: str  # cpu, or the number of a GPU
    role: Role
    out: str  # folder of the run, in which this peer has one of its own; empty: runs/NAME OF RUN
    alone: bool  # afterwards, train on the own data alone as well
    attack: str = ""  # how this peer harms the others, for studies; empty: it does not
    faults: tuple[Fault, ...] = ()  # of the run: those in rounds are carried out here
    resume: bool = False  # go on where an earlier process of this peer was
    force: bool = False  # begin anew, whatever one has left


class Node:
    def __init__(self, plan: Plan, membership: Membership) -> None:
        """Compose a node around its membership, which has not started yet."""
        self.plan = plan
        self.machine: Machine | None = None
        self.settings: Settings | None = None
        self.view: View | None = None
        self._signed: SignedView | None = None  # the same, to be passed on
        self._membership = membership
        self._run: RunId | None = None
        self._trial: Manifest | None = None  # what the trainer was told to prepare, newest
        self._preparing = 0  # orders to prepare that are not answered yet
        self._built: Prepared | None = None  # the answer to the newest of them
        self._past: Past | None = None
        self._links: dict[PeerId, links.Link] = {}
        self._dialled: dict[PeerId, tuple[str, bytes]] = {}
        self._linked: tuple[View | None, frozenset[PeerId]] = (None, frozenset())  # when dialled
        self._hello: Hello | None = None
        self._coded = self._stepped = b""  # digests of the schemas of coded results and of steps
        self._wakes: dict[str, float] = {}
        self._to_compare = ["sgd", "same"] if plan.alone else []
        self._has_begun = False  # somebody was told who founds the run
        self._ended = ""  # why the run ended for this peer; empty while it goes on

    @property
    def wake_at_s(self) -> float | None:
        """The earliest instant at which `wake` is due; None while only others can go on."""
        return min(self._wakes.values(), default=None)

    @property
    def phase(self) -> str:
        """For display: join, prepare, a phase of the machine, or alone."""
        if self._ended:
            return "alone"
        if self.machine is not None:
            return self.machine.phase.value
        return "prepare" if self._preparing else "join"

    def recall(self, past: Past) -> None:
        """Go on from there, once the trainer has answered: before that, call this."""
        if past.finished is not None or past.collected is not None:
            self._past = past

    # -- events --------------------------------------------------------------------------------

    def start(self, now_s: float) -> tuple[Act, ...]:
        return self._join(self._membership.start(now_s), now_s)

    def coordinator_connected(self, now_s: float) -> tuple[Act, ...]:
        return self._join(self._membership.connected(now_s), now_s)

    def coordinator_disconnected(self, reason: str, now_s: float) -> tuple[Act, ...]:
        return self._join(self._membership.disconnected(now_s, reason), now_s)

    def coordinator_said(self, header: bytes, now_s: float) -> tuple[Act, ...]:
        return self._join(self._membership.receive(header, now_s), now_s)

    def link_connected(self, name: PeerId, now_s: float) -> tuple[Act, ...]:
        return self._link(name, lambda link: link.connected(now_s), now_s)

    def link_disconnected(self, name: PeerId, now_s: float) -> tuple[Act, ...]:
        return self._link(name, lambda link: link.disconnected(now_s), now_s)

    def link_said(self, name: PeerId, header: bytes, now_s: float) -> tuple[Act, ...]:
        breach = ""

        def hear(link: links.Link) -> tuple[links.Effect, ...]:
            nonlocal breach
            try:
                return link.receive(PEER.decode(header), now_s)
            except RemoteProtocolError as error:
                breach = str(error)
                return link.fail(breach, now_s)

        acts = self._link(name, hear, now_s)
        return (Happened("misbehaved", name, breach), *acts) if breach else acts

    def peer_done(self, name: PeerId, now_s: float) -> tuple[Act, ...]:
        """The server heard that this peer needs nothing more of us."""
        return self._play(lambda m: m.said_done(name, now_s), now_s)

    def progressed(self, name: PeerId, num_bytes: int, now_s: float) -> tuple[Act, ...]:
        return self._play(lambda m: m.progressed(name, num_bytes, now_s), now_s)

    def sent(self, name: PeerId, num_bytes: int) -> None:
        """The server has given this peer so many bytes."""
        if self.machine is not None:
            self.machine.traffic.sent(name, num_bytes)

    def pulled(self, name: PeerId, snapshot: SnapshotRef, now_s: float) -> tuple[Act, ...]:
        return self._play(lambda m: m.pulled(name, snapshot, now_s), now_s)

    def pull_failed(self, name: PeerId, reason: str, now_s: float) -> tuple[Act, ...]:
        return self._play(lambda m: m.pull_failed(name, reason, now_s), now_s)

    def replied(self, reply: Reply, now_s: float) -> tuple[Act, ...]:
        """The trainer has answered, or tells how far it is."""
        match reply:
            case Prepared():
                return self._prepared(reply, now_s)
            case Failed(reason, operator):
                return self.fail(reason, 2 if operator else 1, now_s)
            case AloneDone():
                return (Compared(reply), *self._compare())
            case _:
                return self._play(lambda machine: machine.replied(reply, now_s), now_s)

    def trainer_ended(self, last_words: str, now_s: float) -> tuple[Act, ...]:
        """The trainer process is gone, though nobody told it to go."""
        return self.fail(f"the trainer process ended: {last_words}", 1, now_s)

    def wake(self, now_s: float) -> tuple[Act, ...]:
        """Fire what is due."""
        acts: list[Act] = []
        for key in [key for key, at_s in self._wakes.items() if at_s <= now_s]:
            self._wakes.pop(key, None)
            if key == _MEMBERSHIP:
                acts += self._join(self._membership.wake(now_s), now_s)
            elif key == _MACHINE:
                acts += self._play(lambda m: m.wake(now_s), now_s)
            elif key == _VIEWS:
                self._wakes[_VIEWS] = now_s + _VIEWS_EVERY_S
                acts += [act for name in sorted(self._links) for act in self._ask_view(name)]
            else:
                acts += self._link(PeerId(key[1:-1]), lambda link: link.wake(now_s), now_s)
        return tuple(acts)

    def stop(self, reason: str, now_s: float) -> tuple[Act, ...]:
        """Leave cleanly: a person asked for it."""
        if self._ended:  # the run is over already; only the comparison was going on
            return (Over(0, reason),)
        self._to_compare = []
        return self._end(reason, now_s)

    def fail(self, reason: str, code: int, now_s: float) -> tuple[Act, ...]:
        """Leave with an exit code that is not 0: nothing can go on here."""
        self._to_compare = []
        self._ended = self._ended or reason
        self._wakes.clear()
        told = as_text(reason)
        leave = self._membership.leave(told, now_s)
        says = tuple(
            Say(COORDINATOR.encode(e.message)) for e in leave if isinstance(e, joining.Send)
        )
        return (*says, Goodbye(told), Over(code, reason))

    # -- membership ------------------------------------------------------------------------------

    def _join(  # noqa: C901 - one line for each kind of effect
        self, effects: Iterable[joining.Effect], now_s: float
    ) -> tuple[Act, ...]:
        acts: list[Act] = []
        for effect in effects:
            match effect:
                case joining.Send(message):
                    acts.append(Say(COORDINATOR.encode(message)))
                case joining.WakeAt(at_s):
                    self._wakes[_MEMBERSHIP] = at_s
                case joining.Unsettled(options):
                    acts += self._settle(options, now_s)
                case joining.Settled(run, options):
                    acts += self._settled(run, options, now_s)
                case joining.ViewChanged(view, signed):
                    self._signed = signed
                    acts += self._viewed(view, now_s)
                case joining.SplitView(epoch):
                    number = f"{epoch.incarnation}.{epoch.counter}"
                    reason = f"two coordinators with one key: two views of epoch {number}"
                    acts.append(Happened("split-view", None, reason))
                case joining.Refused(reason) | joining.GaveUp(reason):
                    acts += self.fail(advised(reason), 2, now_s)
                case joining.CoordinatorLost(reason):
                    self._wakes[_VIEWS] = now_s
                    acts.append(Happened("coordinator-lost", None, reason))
                case joining.CoordinatorBack():
                    self._wakes.pop(_VIEWS, None)
                    acts.append(Happened("coordinator-back", None))
                case _:
                    assert_never(effect)
        return tuple(acts)

    def _settle(self, pinned: Manifest, now_s: float) -> tuple[Act, ...]:
        """Be the first: the run is settled once its model stands here, so that others can join."""
        if self.plan.role is Role.RELAY:
            return ()  # the peers know the data: the first of them settles
        try:
            check_carried(str(pinned.get("run.topology", "")))
            options = Manifest(complete({**pinned, **self.plan.explicit}))
        except OperatorError as error:
            return self.fail(str(error), 2, now_s)
        return self._prepare(options, now_s)

    def _settled(self, run: RunId, options: Manifest, now_s: float) -> tuple[Act, ...]:
        self._run = run
        if options != self._trial:
            return self._prepare(options, now_s)
        return self._begin(self._built, now_s) if self._built is not None else ()

    def _prepare(self, options: Manifest, now_s: float) -> tuple[Act, ...]:
        """Have the trainer build what these options say."""
        view = self.view
        if view is None:
            return ()  # a view comes with each admission
        try:
            self.settings = Settings.read(options)
            self.settings.topology.check(view.founders)
            check_rounds(self.plan.faults, self.settings.run.rounds)
            self._check_consent(self.settings.model)
        except OperatorError as error:
            return self.fail(str(error), 2, now_s)
        settings = tuple(Setting(key, value) for key, value in options.items())
        plan = self.plan
        directory = str(Path(plan.out or Path("runs", view.run_name)).absolute() / plan.me)
        self._trial, self._built = options, None
        self._preparing += 1
        data, device = plan.data, plan.device
        prepare = Prepare(
            plan.me, plan.role, view.run, settings, data, device, directory, plan.attack
        )
        return (Order(prepare),)

    def _check_consent(self, model: str) -> None:
        """A model of a person's own runs code: no other's word is enough for that.

        Raises:
            ConfigError: this node's own person has not typed it.
        """
        if ":" in model and self.plan.explicit.get("model") != model:
            raise ConfigError(
                f"the run's model is {model}, which imports and runs code of that name here; only "
                "the person at this machine can allow that",
                hint=f"if you trust it, start again with --option model={model}",
            )

    def _prepared(self, prepared: Prepared, now_s: float) -> tuple[Act, ...]:
        self._preparing -= 1
        if self._preparing or self._ended:
            return ()  # of options that another peer's have replaced meanwhile
        self._built = prepared
        if self._run is None and self._trial is not None:
            return self._join(self._membership.settle(self._trial, now_s), now_s)
        return self._begin(prepared, now_s)

    def _begin(self, prepared: Prepared, now_s: float) -> tuple[Act, ...]:
        """Say that this peer is ready; the coordinator opens the lobby to it."""
        if self._run is None or self.settings is None:
            return ()
        settings = self.settings
        self._coded, self._stepped = prepared.coded, prepared.stepped
        self._hello = Hello(WIRE_VERSION, self._run, self.plan.me, prepared.schema)
        self.machine = Machine(
            me=self.plan.me,
            topology=settings.topology,
            seed=settings.run.seed,
            rounds=settings.run.rounds,
            pace=settings.pace,
            participation=settings.run.participation,
            exchange=prepared.exchange,
            plan=FaultPlan(self.plan.faults, seed=settings.run.seed),
        )
        if self._past is not None:
            self.machine.recall(self._past)
        ready = self._membership.ready(prepared.schema, prepared.init, now_s)
        return (
            Started(self._run, settings, prepared, self.plan.attack),
            Open(self._run, prepared.schema),
            *self._join(ready, now_s),
            *(self._viewed(self.view, now_s) if self.view is not None else ()),
        )

    def _viewed(self, view: View, now_s: float) -> tuple[Act, ...]:
        self.view, census = view, census_of(view)
        acts: list[Act] = []
        if self._signed is not None:
            acts.append(Members(census.admitted, view.epoch, self._signed))
        for name in sorted(self._links.keys() & census.revoked):
            del self._links[name]
            self._dialled.pop(name, None)
            self._wakes.pop(f"<{name}>", None)
            acts.append(HangUp(name))
        if view.founding and not self._has_begun:
            self._has_begun = True
            acts += self._faults_of_nobody(view)
        if self.machine is not None and self.machine.phase is Phase.LOBBY and not view.founding:
            acts.append(Lobby(len(census.ready), view.founders))
        return (*acts, *self._play(lambda m: m.view(view, now_s), now_s))

    def _faults_of_nobody(self, view: View) -> tuple[Act, ...]:
        """Tell whom the faults name though nobody of that name is there: it may be mistyped."""
        faults = self.plan.faults
        named = {str(name) for fault in faults for name in fault.names} - set(late_names(faults))
        nobody = sorted(named - {member.name for member in view.members})
        return (Happened("faults-of-nobody", None, ", ".join(nobody)),) if nobody else ()

    # -- links -----------------------------------------------------------------------------------

    def _link(
        self,
        name: PeerId,
        event: Callable[[links.Link], Iterable[links.Effect]],
        now_s: float,
    ) -> tuple[Act, ...]:
        link = self._links.get(name)
        if link is None:
            return ()
        acts: list[Act] = []
        for effect in event(link):
            match effect:
                case links.Send(message):
                    acts.append(SayTo(name, PEER.encode(message)))
                case links.WakeAt(at_s):
                    self._wakes[f"<{name}>"] = at_s
                case links.ViewPassed(signed):
                    acts += self._overheard(name, signed, now_s)
                case links.LinkUp():
                    acts += self._ask_view(name)
                    acts += self._play(_heard(name, effect, now_s), now_s)
                case _:
                    acts += self._play(_heard(name, effect, now_s), now_s)
        return tuple(acts)

    def _ask_view(self, name: PeerId) -> tuple[Act, ...]:
        """Tell a neighbour which view we have, so that it passes on a newer one."""
        link = self._links[name]
        if self._run is None or self.view is None or not link.is_up:
            return ()
        return (SayTo(name, PEER.encode(Seen(self._run, self.view.epoch))),)

    def _overheard(self, name: PeerId, signed: SignedView, now_s: float) -> tuple[Act, ...]:
        before = self.view
        try:
            effects = self._membership.overhear(signed)
        except RemoteProtocolError as error:
            told = Happened("misbehaved", name, reason := str(error))
            return (told, *self._link(name, lambda link: link.fail(reason, now_s), now_s))
        acts = self._join(effects, now_s)
        if self.view is before or self.view is None:
            return acts
        epoch = self.view.epoch
        reason = f"the view of epoch {epoch.incarnation}.{epoch.counter}, newer than ours"
        return (Happened("view-passed", name, reason), *acts)

    def _dial(self) -> tuple[Act, ...]:
        """Keep one link to each neighbour, at the address that the view gives."""
        if self.machine is None or self.view is None or self._hello is None:
            return ()
        if self._linked[0] is self.view and self._linked[1] == self.machine.neighbours.keys():
            return ()
        self._linked = (self.view, frozenset(self.machine.neighbours))
        acts: list[Act] = []
        by_name = census_of(self.view).by_name
        for name in sorted(self.machine.neighbours):
            member = by_name.get(name)
            if member is None or member.state == "revoked":
                continue
            where = member.address, member.curve_key
            if not where[0] or self._dialled.get(name) == where:
                continue
            self._dialled[name] = where
            if name not in self._links:
                self._links[name] = links.Link(
                    self._hello,
                    neighbour=name,
                    sign_key=member.sign_key,  # bound to the name for the whole run
                    coded=self._coded,
                    stepped=self._stepped,
                    silence_s=self.machine.pace.silence_s,
                )
            acts.append(Dial(name, *where))
        return tuple(acts)

    # -- the round machine ------------------------------------------------------------------------

    def _play(self, event: Callable[[Machine], Iterable[Effect]], now_s: float) -> tuple[Act, ...]:
        if self.machine is None or self._ended:
            return ()
        effects = tuple(event(self.machine))
        acts = list(self._dial())
        for effect in effects:
            acts += self._act(effect, now_s)
        return tuple(acts)

    def _act(self, effect: Effect, now_s: float) -> tuple[Act, ...]:
        match effect:
            case Question(name, round_no, part, holds):
                return self._link(name, lambda link: link.ask(round_no, now_s, part, holds), now_s)
            case Farewell(name):
                return self._link(name, lambda link: link.finish(now_s), now_s)
            case WakeAt(at_s):
                self._wakes[_MACHINE] = at_s
                return ()
            case End(reason):
                return self._end(reason, now_s)
            case Tell(round_no, phase):
                self._membership.report(round_no, phase, now_s)
                return (effect,)
            case Fetch() | Order() | Serve() | Record() | Keep() | Happened():
                return (effect,)
            case _:
                assert_never(effect)

    # -- the end -----------------------------------------------------------------------------------

    def _end(self, reason: str, now_s: float) -> tuple[Act, ...]:
        if self._ended:
            return ()
        self._ended = reason
        self._wakes.clear()
        leave = self._join(self._membership.leave(reason, now_s), now_s)
        return (*leave, Goodbye(reason), *self._compare())

    def _compare(self) -> tuple[Act, ...]:
        if self._to_compare:
            return (Order(Alone(self._to_compare.pop(0))),)
        return (Order(Quit()), Over(0, self._ended))


def _heard(
    name: PeerId, effect: links.Effect, now_s: float
) -> Callable[[Machine], Iterable[Effect]]:
    """What a link tells, as an event of the round machine."""

    def event(machine: Machine) -> Iterable[Effect]:
        match effect:
            case links.LinkUp():
                return machine.link_up(name, now_s)
            case links.LinkDown(reason, said_bye):
                down = machine.said_bye if said_bye else machine.link_down
                return down(name, reason, now_s)
            case links.Waiting(not_yet):
                return machine.waiting(name, not_yet, now_s)
            case links.Answered(_, manifest, digest, step):
                return machine.answered(name, manifest, digest, now_s, step)
            case links.Refused(reason):
                return machine.refused(name, reason, now_s)
            case links.Finished():
                return machine.knows_done(name, now_s)
            case links.Send() | links.WakeAt() | links.ViewPassed():
                return ()
            case _:
                assert_never(effect)

    return event

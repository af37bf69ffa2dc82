"""The round: whom to ask, how long to wait, what to mix, when to go on. Sans-IO.

Owns the phase, the round number and the neighbours' standing. Every method is an event with the
instant at which it happened, and returns effects to be carried out in order. Must not know
sockets, files, threads, clocks or tensors. docs/design.md tells the rules in prose.

LOBBY -> [COLLECT r -> MIX r -> TRAIN r -> EVALUATE r -> PUBLISH r] x R -> DRAIN -> LEFT
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from peer.collection import Yield, doubt, jump_target, longest_s, sort_out, verdict
from peer.effects import (
    Effect,
    End,
    Farewell,
    Fetch,
    Happened,
    Keep,
    Order,
    Question,
    Record,
    Serve,
    Tell,
    WakeAt,
)
from peer.entries import Collected, Finished, Good, Past, mapping, numbers, written
from peer.faults.plan import FaultPlan
from peer.neighbour import Held, Neighbour, Pulling
from peer.pace import Pace
from peer.record import RoundRecord, tensor_digests
from peer.retention import Retention
from peer.roles import Exchange
from peer.roster import Roster
from peer.traffic import Traffic
from peer.work import (
    Adopt,
    Adopted,
    Evaluate,
    Evaluated,
    Inspect,
    Inspected,
    Mix,
    MixDone,
    Publish,
    Published,
    SnapshotRef,
    Step,
    Train,
    TrainDone,
    Working,
)
from protocol.ids import PeerId
from protocol.topology import Topology
from protocol.wire.link_effects import Step as StepOffered
from protocol.wire.messages import NotYet, Part, SnapshotManifest, View

__all__ = ["Machine", "Phase"]


class Phase(StrEnum):
    LOBBY = "lobby"
    COLLECT = "collect"
    MIX = "mix"
    TRAIN = "train"
    EVALUATE = "evaluate"
    PUBLISH = "publish"
    DRAIN = "drain"
    LEFT = "left"


STATE_SLOT = 2  # the receive buffer of a state; 0 and 1 are those of results
MAX_FAILURES = 3  # of one neighbour's pulls in a round: what never arrives is not asked for ever


class Machine:
    def __init__(
        self,
        *,
        me: PeerId,
        topology: Topology,
        seed: int,
        rounds: int,
        pace: Pace,
        participation: float = 1.0,
        exchange: Exchange = Exchange.NEIGHBOURS,
        plan: FaultPlan | None = None,
    ) -> None:
        """Make a machine in the lobby.

        Args:
            me: this peer's name.
            topology: who is whose neighbour, given the roster and the seed.
            seed: the run's.
            rounds: how many rounds to play, >= 1.
            pace: how long to wait.
            participation: share of the roster that is active in a round, in (0, 1].
            exchange: whom a round needs.
            plan: of the faults that are given in rounds, the same on all nodes.
        """
        self._me = me
        self._plan = plan if plan is not None else FaultPlan()
        self._leaves = self._plan.last_round(me, rounds) < rounds
        self._rounds = self._plan.last_round(me, rounds)
        self._run = b""  # of the view
        self._past: Past | None = None  # where an earlier process of this peer was
        self._published: tuple[Published, ...] = ()  # what is served, oldest first
        self._kept = Retention(self._plan, me=me, rounds=rounds)
        self.pace = pace
        self._exchange = exchange
        self._roster = Roster(
            me=me,
            topology=topology,
            seed=seed,
            participation=participation,
            exchange=exchange,
            plan=self._plan,
        )
        self._farewelled: set[PeerId] = set()  # told that nothing more is needed of them
        self._ahead = 0  # rounds sat out just before this one
        self._asked_from_s = -math.inf  # when the first COLLECT with questions began
        self._lag = 0 if exchange.serves else 1  # the round that is collected is so much older
        self._healing = ""  # whose state is being adopted in the middle of MIX
        self.phase = Phase.LOBBY
        self.traffic = Traffic()  # since the last record
        self.round_no = 0
        self.neighbours: dict[PeerId, Neighbour] = {}
        self.asked: tuple[PeerId, ...] = ()  # in this round, sorted
        self._round_began_s = 0.0  # when this round began, skipped ones included
        self._began_s = 0.0  # when this phase of waiting began: COLLECT or DRAIN
        self._skipped: tuple[int, ...] = ()
        self._waited_s = 0.0
        self._work_s = 0.0  # longest time from the end of COLLECT to a published result
        self._worked_from_s = 0.0
        self._yield = Yield()  # of this round's COLLECT
        self._mix = Mix(0, 0, (), ())  # the order of this round
        self._heal_by_s = 0.0
        self._mixed: MixDone | None = None
        self._trained: TrainDone | None = None
        self._scores: Evaluated | None = None
        self._update = False  # this round's result goes to a relay as an update too

    @property
    def _wanted(self) -> int:
        """The round whose results this COLLECT is for."""
        return self.round_no - self._lag

    def recall(self, past: Past) -> None:
        """Once the run is there, go on from here; the trainer must be there already."""
        self._past = past

    # -- what the coordinator says -----------------------------------------------------------

    def view(self, view: View, now_s: float) -> tuple[Effect, ...]:
        """A newer view. The roster follows it at the next boundary of a round only."""
        self._run = view.run
        effects: list[Effect] = []
        for name in self._roster.see(view):
            if name in self.neighbours and not self.neighbours[name].gone:
                self.neighbours[name].gone = True
                effects.append(Happened("left", name, "the coordinator says so"))
        for name in sorted(self._roster.revoked & self.neighbours.keys()):
            # What it sent may be poison: that may be why it was revoked.
            self.neighbours[name].good = self.neighbours[name].pulling = None
        if self.phase is Phase.LOBBY and view.founding:
            if (past := self._past) is not None:
                self._past = None
                return (*effects, *self._resume(past, now_s))
            is_late = self._lag > 0 and self._me not in view.founding
            self._roster.is_late = is_late
            # A late joiner asks for round 1 and is given whatever is newest: it then jumps there.
            return (*effects, *self._begin_round(2 if is_late else 1, now_s))
        return (*effects, *self._settle(now_s))

    # -- what the neighbours say ---------------------------------------------------------------

    def link_up(self, name: PeerId, now_s: float) -> tuple[Effect, ...]:
        neighbour = self.neighbours.get(name)
        if neighbour is None:
            return ()
        neighbour.connected = True
        neighbour.gone = name in self._roster.left
        return (*self._life(neighbour, now_s), *self._settle(now_s))

    def link_down(self, name: PeerId, reason: str, now_s: float) -> tuple[Effect, ...]:
        neighbour = self.neighbours.get(name)
        if neighbour is not None:
            neighbour.connected = False
        return self._settle(now_s)

    def said_bye(self, name: PeerId, reason: str, now_s: float) -> tuple[Effect, ...]:
        """A neighbour leaves, by its own word."""
        neighbour = self.neighbours.get(name)
        if neighbour is None or neighbour.gone:
            return ()
        neighbour.gone, neighbour.connected = True, False
        return (Happened("left", name, reason), *self._settle(now_s))

    def said_done(self, name: PeerId, now_s: float) -> tuple[Effect, ...]:
        """A neighbour needs nothing more of us."""
        neighbour = self._known(name)
        neighbour.said_done = True
        return self._settle(now_s)

    def knows_done(self, name: PeerId, now_s: float) -> tuple[Effect, ...]:
        """A neighbour has taken note that we need nothing more of it."""
        neighbour = self._known(name)
        neighbour.knows_done = True
        return self._settle(now_s)

    def waiting(self, name: PeerId, news: NotYet, now_s: float) -> tuple[Effect, ...]:
        neighbour = self.neighbours.get(name)
        if neighbour is None:
            return ()
        neighbour.news, neighbour.news_s = news, now_s
        return (*self._life(neighbour, now_s), *self._settle(now_s))

    def answered(
        self,
        name: PeerId,
        manifest: SnapshotManifest,
        digest: bytes,
        now_s: float,
        step: StepOffered | None = None,
    ) -> tuple[Effect, ...]:
        """A neighbour has a result for us, and maybe a step to it from one that is here."""
        neighbour = self.neighbours.get(name)
        if neighbour is None:
            return ()
        effects = self._life(neighbour, now_s)
        heals = manifest.part is Part.STATE
        if heals != (name == self._healing) or self.phase in {Phase.DRAIN, Phase.LEFT}:
            return effects
        if neighbour.pulling is not None or (not heals and neighbour.has(manifest.round_no)):
            return effects
        slot = STATE_SLOT if heals else neighbour.spare_slot()
        neighbour.pulling = Pulling(digest, manifest.round_no, slot)
        fetch = Fetch(name, manifest, digest, slot, neighbour.onward(step))
        return (*effects, fetch, *self._settle(now_s))

    def refused(self, name: PeerId, reason: str, now_s: float) -> tuple[Effect, ...]:
        """A neighbour will not talk to us, or what it sent does not fit."""
        neighbour = self.neighbours.get(name)
        if neighbour is None:
            return ()
        neighbour.pulling = None
        neighbour.fault = neighbour.fault or reason
        return (*self._life(neighbour, now_s), *self._settle(now_s))

    # -- what the data plane says -------------------------------------------------------------

    def progressed(self, name: PeerId, num_bytes: int, now_s: float) -> tuple[Effect, ...]:
        neighbour = self.neighbours.get(name)
        if neighbour is None:
            return ()
        self.traffic.pulled(name, num_bytes)
        return self._life(neighbour, now_s)

    def pulled(self, name: PeerId, snapshot: SnapshotRef, now_s: float) -> tuple[Effect, ...]:
        """A snapshot is here whole, and every digest fits."""
        neighbour = self.neighbours.get(name)
        if neighbour is None or neighbour.pulling is None:
            return ()
        if neighbour.pulling.digest != snapshot.digest:
            return ()
        neighbour.pulling.snapshot = snapshot
        if neighbour.pulling.slot == STATE_SLOT:
            neighbour.pulling = None
            return (*self._life(neighbour, now_s), *self._state_came(name, snapshot, now_s))
        return (*self._life(neighbour, now_s), Order(Inspect(name, snapshot)))

    def pull_failed(self, name: PeerId, reason: str, now_s: float) -> tuple[Effect, ...]:
        """A pull came to nothing; the neighbour is asked again, a few times in a round."""
        neighbour = self.neighbours.get(name)
        if neighbour is None:
            return ()
        if neighbour.failed() >= MAX_FAILURES:
            neighbour.fault = f"{neighbour.failures} pulls failed, the last: {reason}"
        effects: tuple[Effect, ...] = (Happened("pull-failed", name, reason),)
        if name == self._healing:
            return (*effects, *self._mix_alone())
        if self.phase is Phase.COLLECT and not neighbour.settled(self._wanted):
            effects += (self._question(name),)
        return (*effects, *self._settle(now_s))

    def inspected(self, done: Inspected, now_s: float) -> tuple[Effect, ...]:
        """The trainer has looked at what was pulled; an empty `fault` admits it."""
        name = PeerId(done.neighbour)
        neighbour = self.neighbours.get(name)
        if neighbour is None or neighbour.pulling is None or neighbour.pulling.snapshot is None:
            return ()
        pulling, snapshot = neighbour.pulling, neighbour.pulling.snapshot
        if pulling.digest != done.digest:
            return ()
        neighbour.pulling = None
        if done.fault:
            neighbour.fault = done.fault
            return (Happened("refused", name, done.fault), *self._settle(now_s))
        neighbour.file(Held(pulling.round_no, snapshot, pulling.slot))
        if self.phase is not Phase.COLLECT:
            return ()  # filed: it arrived after its round had closed
        if neighbour.has(self._wanted):
            neighbour.arrived(now_s - self._began_s)
            return self._settle(now_s)
        return (self._question(name), *self._settle(now_s))

    def replied(self, reply: Step, now_s: float) -> tuple[Effect, ...]:
        """The trainer has done one step of a round, or tells how far it is."""
        match reply:
            case Working():
                return self.working(reply, now_s)
            case Inspected():
                return self.inspected(reply, now_s)
            case MixDone():
                return self.mixed(reply, now_s)
            case Adopted():
                return self.adopted(reply, now_s)
            case TrainDone():
                return self.trained(reply, now_s)
            case Evaluated():
                return self.evaluated(reply, now_s)
            case Published():
                return self.published(reply, now_s)
            case _:
                assert_never(reply)

    # -- what the trainer says -----------------------------------------------------------------

    def working(self, news: Working, now_s: float) -> tuple[Effect, ...]:
        eta_s = news.eta_s if self.phase is Phase.TRAIN else self._work_s
        return (Tell(self.round_no, self.phase.value, news.fraction, eta_s),)

    def mixed(self, done: MixDone, now_s: float) -> tuple[Effect, ...]:
        if done.adopt:
            return self._heal(PeerId(done.adopt), now_s)
        self._mixed = done
        if not self._lag:  # a relay trains nothing
            return self._publish(update=False)
        return self._enter(Phase.TRAIN, Order(Train(self.round_no)))

    def adopted(self, done: Adopted, now_s: float) -> tuple[Effect, ...]:
        """The trainer has taken over the state of a neighbour, or could not."""
        name = PeerId(done.neighbour)
        if name != self._healing:
            return ()
        if done.fault:
            return (Happened("resync-failed", name, done.fault), *self._mix_alone())
        self._healing = ""
        resync = Happened("resync", name, "its start and memory were adopted")
        return (resync, Order(replace(self._mix, may_adopt=False)))

    def trained(self, done: TrainDone, now_s: float) -> tuple[Effect, ...]:
        self._trained = done
        # Decided once for both: a relay that comes or goes in between must find no other start.
        self._update = self._exchange is Exchange.NEIGHBOURS and bool(self._roster.relay)
        return self._enter(Phase.EVALUATE, Order(Evaluate(self.round_no, self._update)))

    def evaluated(self, done: Evaluated, now_s: float) -> tuple[Effect, ...]:
        self._scores = done
        return self._publish(update=self._update)

    def _publish(self, *, update: bool) -> tuple[Effect, ...]:
        order = Publish(self.round_no, update, self._kept.number)
        return self._enter(Phase.PUBLISH, Order(order))

    def published(self, done: Published, now_s: float) -> tuple[Effect, ...]:
        self._work_s = max(self._work_s, now_s - self._worked_from_s)
        record = replace(
            self._record(now_s), digest=done.content.hex(), tensors=tensor_digests(done.snapshot)
        )
        effects: tuple[Effect, ...] = (
            Keep(self._finished(done, record), (*self._served(done), Record(record))),
        )
        self._published = (*self._published, done)[-self._kept.number :]
        self._skipped = ()
        if self.round_no >= self._rounds:
            return (*effects, *self._drain(now_s))
        return (*effects, *self._begin_round(self.round_no + 1, now_s))

    # -- time, and the person ------------------------------------------------------------------

    def wake(self, now_s: float) -> tuple[Effect, ...]:
        return self._settle(now_s)

    def stop(self, reason: str) -> tuple[Effect, ...]:
        """Leave now: a person asked for it."""
        if self.phase is Phase.LEFT:
            return ()
        self.phase = Phase.LEFT
        return (End(reason),)

    def missing(self) -> tuple[PeerId, ...]:
        """Neighbours that this COLLECT still waits for, sorted."""
        if self.phase is not Phase.COLLECT:
            return ()
        wanted = self._wanted
        return tuple(n.name for n in self._waited_for() if not n.settled(wanted))

    # -- COLLECT --------------------------------------------------------------------------------

    def _begin_round(self, round_no: int, now_s: float) -> tuple[Effect, ...]:
        """Draw the neighbours of this round and ask them, or skip the rounds of others."""
        earliest = round_no
        first = self.round_no == 0 and not self._roster.is_late
        round_no = self._roster.follow(earliest, self._rounds, first=first)
        absent = self._absent(earliest, min(round_no, self._rounds + 1))
        if round_no > self._rounds:
            return (*absent, *self._drain(now_s))
        self._ahead = round_no - earliest
        self.round_no = round_no
        self.phase = Phase.COLLECT
        self._healing = ""
        self._began_s = self._round_began_s = now_s
        self._mixed = self._trained = self._scores = None
        # Nobody has a round 0 to give: it is the initial model, the same on all.
        needed = self._roster.needed(self._wanted)
        self._kept.serves(self._roster.adjacent)
        self.asked = needed if self._wanted >= 1 else ()
        if self.asked and math.isinf(self._asked_from_s):
            self._asked_from_s = now_s
        for name in needed:
            self._known(name)
        effects: list[Effect] = [*absent, Tell(round_no, Phase.COLLECT.value, 0.0, self._work_s)]
        effects += self._part(round_no)
        for name in self.asked:
            neighbour = self.neighbours[name]
            neighbour.begin()
            neighbour.cut = self._cut(name)
            if self._is_to_be_asked(neighbour):
                effects.append(self._question(name))
        return (*effects, *self._settle(now_s))

    @property
    def _waits(self) -> bool:
        """Do rounds wait? Those of a relay do, and the first of whoever has nothing yet."""
        return self.pace.mode == "sync" or self._exchange.serves or not self._published

    def _is_to_be_asked(self, neighbour: Neighbour) -> bool:
        if neighbour.pulling is not None:
            return False
        if self._waits:
            return not neighbour.settled(self._wanted)
        return not neighbour.gone and not neighbour.cut

    def _absent(self, first: int, end: int) -> tuple[Effect, ...]:
        """Tell which of these rounds this node sits out because the faults say so."""
        if not self._plan:
            return ()
        relay = self._exchange.serves
        out = [n for n in range(first, end) if self._plan.absence(self._me, n, is_relay=relay)]
        if not out:
            return ()
        told = f"round {out[0]}" if len(out) == 1 else f"rounds {', '.join(map(str, out))}"
        return (Happened("absent", None, told),)

    def _cut(self, name: PeerId) -> str:
        """Why the faults let the exchange with this node fail in this round."""
        return self._plan.cut(
            self._me,
            name,
            round_no=self.round_no,
            asked=self._wanted,
            is_relay=name == self._roster.relay,
        )

    def _part(self, round_no: int) -> list[Effect]:
        """Tell those of whom the faults let nothing more come that nothing more is needed."""
        if not self._plan or self._exchange.serves:
            return []
        over = [
            name
            for name in sorted(self.neighbours)
            if name not in self._farewelled
            and name != self._roster.relay
            and self._plan.is_over(self._me, name, round_no, self._rounds)
        ]
        self._farewelled.update(over)
        return [Farewell(name) for name in over]

    def _known(self, name: PeerId) -> Neighbour:
        if name not in self.neighbours:
            self.neighbours[name] = Neighbour(name)
        return self.neighbours[name]

    def _question(self, name: PeerId) -> Question:
        """Ask for the round that is wanted; whom nobody waits for, for any newer one."""
        part = Part.UPDATE if self._exchange is Exchange.UPDATES else Part.RESULT
        neighbour, wanted = self.neighbours[name], self._wanted
        holds = neighbour.holds if part is Part.RESULT else b""  # nothing else has steps
        if name == self._roster.unawaited or not self._waits:
            wanted = neighbour.good.round_no + 1 if neighbour.good is not None else 1
        return Question(name, wanted, part, holds)

    def _waited_for(self) -> list[Neighbour]:
        asked = [self.neighbours[n] for n in self.asked if n != self._roster.unawaited]
        return [neighbour for neighbour in asked if not neighbour.cut]

    def _settle(self, now_s: float) -> tuple[Effect, ...]:
        """Close what is due to be closed; else say when to look again."""
        if self.phase is Phase.COLLECT:
            return self._settle_collect(now_s)
        if self.phase is Phase.DRAIN:
            return self._settle_drain(now_s)
        if self._healing and math.isfinite(self._heal_by_s):
            return (WakeAt(self._heal_by_s),) if now_s < self._heal_by_s else self._mix_alone()
        return ()

    def _settle_collect(self, now_s: float) -> tuple[Effect, ...]:
        pending = [self.neighbours[n] for n in self.missing()]
        if not self._waits:
            return self._close(pending, now_s)
        found = verdict(
            pending,
            len(self._waited_for()) - len(pending),
            began_s=self._began_s,
            longest_s=longest_s([self.neighbours[n] for n in self.asked], self._work_s),
            pace=self.pace,
            now_s=now_s,
            ahead=self._ahead,
        )
        return self._close(pending, now_s) if found.closed else (WakeAt(found.look_again_s),)

    def _close(self, given_up: Sequence[Neighbour], now_s: float) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        asked = [self.neighbours[name] for name in self.asked]
        self._waited_s = now_s - self._began_s
        doubt(given_up, asked, self._work_s, self._waited_s / (1 + self._ahead), self.pace)
        for neighbour in given_up:
            silent = now_s >= neighbour.silent_s(self._asked_from_s, self.pace)
            if silent and not neighbour.lost:
                neighbour.lost = True
                effects.append(Happened("lost", neighbour.name, self._silence_of(neighbour, now_s)))
        if self._waits and (newest := jump_target(asked, self._wanted)):
            jump_to = min(newest + self._lag, self._rounds)
            self._skipped += tuple(range(self.round_no, jump_to))
            self.round_no = jump_to
        pace = self.pace if self._exchange.mixes_stale else replace(self.pace, max_staleness=0)
        self._yield = sort_out(asked, self._wanted, pace)
        self._roster.is_late = False
        self._worked_from_s = now_s
        self._mix = Mix(
            self.round_no,
            len(self._roster.adjacent),
            self._yield.inputs,
            self._roster.peers,
            self._roster.relay,
            may_adopt=self._exchange in {Exchange.COMMON, Exchange.RESULTS}
            and not self._roster.relay,
        )
        return (*effects, Keep(self._collected()), *self._enter(Phase.MIX, Order(self._mix)))

    def _silence_of(self, neighbour: Neighbour, now_s: float) -> str:
        if math.isinf(neighbour.heard_s):
            waited_s = now_s - self._began_s
            return f"not reached in {waited_s:.1f} s: a firewall, or an address that misleads?"
        return f"silent for {now_s - neighbour.heard_s:.1f} s"

    # -- a common model that has come apart ------------------------------------------------------

    def _heal(self, name: PeerId, now_s: float) -> tuple[Effect, ...]:
        """Before the round goes on, adopt the state of the largest group that agrees."""
        self._healing = name
        self._heal_by_s = now_s + self.pace.silence_s
        return (Question(name, self._wanted, Part.STATE), WakeAt(self._heal_by_s))

    def _state_came(self, name: PeerId, snapshot: SnapshotRef, now_s: float) -> tuple[Effect, ...]:
        """Adopt it, unless the round went on without; then its sender can be asked again."""
        if name == self._healing:
            self._heal_by_s = math.inf  # nobody but our own trainer is waited for, which answers
            return (Order(Adopt(name, snapshot)),)
        asks = self.phase is Phase.COLLECT and not self.neighbours[name].settled(self._wanted)
        return (*((self._question(name),) if asks else ()), *self._settle(now_s))

    def _mix_alone(self) -> tuple[Effect, ...]:
        """It cannot be had: a local round, and the next one tries again."""
        self._healing = ""
        return (Order(replace(self._mix, inputs=(), may_adopt=False)),)

    # -- the rest of a round ----------------------------------------------------------------------

    def _enter(self, phase: Phase, order: Order) -> tuple[Effect, ...]:
        self.phase = phase
        return (Tell(self.round_no, phase.value, 0.0, self._work_s), order)

    def _record(self, now_s: float) -> RoundRecord:
        mixed, trained, scores = self._mixed, self._trained, self._scores
        faults = {n: self.neighbours[n].fault for n in self.asked if self.neighbours[n].fault}
        faults |= {PeerId(u.sender): u.reason for u in mixed.unused} if mixed else {}
        pulled, sent = self.traffic.take()
        return RoundRecord(
            round_no=self.round_no,
            used=self._yield.used,
            stale=self._yield.stale,
            missing=tuple(n for n in self._yield.missing if n != self._roster.unawaited),
            refused=faults,
            cut={n: self.neighbours[n].cut for n in self.asked if self.neighbours[n].cut},
            unawaited=self._roster.unawaited,
            skipped=self._skipped,
            waited_s=self._waited_s,
            mix_s=mixed.seconds if mixed else 0.0,
            train_s=trained.seconds if trained else 0.0,
            twin_s=trained.twin_seconds if trained else 0.0,
            round_s=now_s - self._round_began_s,
            num_steps=trained.num_steps if trained else 0,
            epsilon=trained.epsilon if trained and trained.epsilon >= 0.0 else None,
            train_loss=trained.loss if trained else 0.0,
            mixed=scores.mixed if scores else None,
            trained=scores.trained if scores else None,
            own=scores.own if scores else None,
            served=scores.served if scores else "trained",
            twin=scores.twin[0] if scores and scores.twin else None,
            candidates=scores.candidates if scores else (),
            weights=mixed.weights if mixed else (),
            notes={note.name: note.value for note in mixed.notes} if mixed else {},
            groups=mixed.groups if mixed else (),
            pulled=pulled,
            sent=sent,
        )

    def _life(self, neighbour: Neighbour, now_s: float) -> tuple[Effect, ...]:
        return (Happened("returned", neighbour.name),) if neighbour.heard(now_s) else ()

    # -- the journal ------------------------------------------------------------------------------

    def _collected(self) -> Collected:
        """What this round mixes, for the journal: a process that goes on mixes the same."""
        done, of_round = self._yield, self._roster
        return Collected(
            run=self._run,
            round_no=self.round_no,
            after=self._published[-1].round_no if self._published else 0,
            mix=self._mix,
            adjacent=of_round.adjacent,
            asked=self.asked,
            used=numbers(done.used),
            stale=numbers(done.stale),
            missing=done.missing,
            skipped=self._skipped,
            waited_s=self._waited_s,
            good=self._good(),
        )

    def _finished(self, done: Published, record: RoundRecord) -> Finished:
        return Finished(
            run=self._run,
            round_no=self.round_no,
            published=done,
            before=tuple(p for p in self._published[1 - self._kept.number :] if p.memory),
            record=written(record),
            work_s=self._work_s,
            good=self._good(),
        )

    def _served(self, done: Published) -> tuple[Serve, ...]:
        refs = (*done.more, done.snapshot)  # the result last: it is offered with the step to it
        return tuple(Serve(ref, done.round_no, self._kept.number) for ref in refs)

    def _good(self) -> tuple[Good, ...]:
        return tuple(
            Good(name, held.round_no, held.slot, held.snapshot)
            for name, neighbour in sorted(self.neighbours.items())
            if (held := neighbour.good) is not None
        )

    def _resume(self, past: Past, now_s: float) -> tuple[Effect, ...]:
        """Go on where an earlier process was: in the middle of a round, or before the next."""
        finished, collected = past.finished, past.collected
        newest = collected or finished
        for good in newest.good if newest is not None else ():
            self._known(PeerId(good.neighbour)).good = Held(good.round_no, good.snapshot, good.slot)
        effects: tuple[Effect, ...] = ()
        if finished is not None:
            self._published = (*finished.before, finished.published)
            self._kept.holds(len(self._published))
            effects = tuple(serve for done in self._published for serve in self._served(done))
            self.round_no, self._work_s = finished.round_no, finished.work_s
        if collected is not None:
            return (*effects, *self._mix_again(collected, now_s))
        if self.round_no >= self._rounds:
            self._roster.follow(self.round_no, self._rounds, first=False)
            for name in self._roster.needed(self._wanted):
                self._known(name)
            return (*effects, *self._drain(now_s))
        return (*effects, *self._begin_round(self.round_no + 1, now_s))

    def _mix_again(self, collected: Collected, now_s: float) -> tuple[Effect, ...]:
        """Mix what had been collected: the same inputs and streams give the same round."""
        self._roster.restore(
            peers=[PeerId(name) for name in collected.mix.roster],
            adjacent=[PeerId(name) for name in collected.adjacent],
            relay=collected.mix.relay,
        )
        self._kept.serves(self._roster.adjacent)
        self.round_no = collected.round_no
        self.asked = tuple(PeerId(name) for name in collected.asked)
        for name in self.asked:
            self._known(name).cut = self._cut(name)
        self._skipped, self._waited_s = collected.skipped, collected.waited_s
        self._yield = Yield(
            collected.mix.inputs,
            mapping(collected.used),
            mapping(collected.stale),
            tuple(PeerId(name) for name in collected.missing),
        )
        self._began_s = self._round_began_s = self._worked_from_s = now_s
        self._mix = collected.mix
        return self._enter(Phase.MIX, Order(self._mix))

    # -- DRAIN ------------------------------------------------------------------------------------

    def _drain(self, now_s: float) -> tuple[Effect, ...]:
        self.phase = Phase.DRAIN
        self._began_s = now_s
        farewells = tuple(Farewell(n) for n in sorted(self.neighbours) if n not in self._farewelled)
        return (
            Tell(self.round_no, Phase.DRAIN.value, 0.0, 0.0),
            *farewells,
            *self._settle_drain(now_s),
        )

    def _settle_drain(self, now_s: float) -> tuple[Effect, ...]:
        """Serve on until every living neighbour has said that it needs nothing more."""
        open_ones = [
            n
            for n in self.neighbours.values()
            if not n.gone and not n.lost and not (n.said_done and n.knows_done)
        ]
        end_s = self._began_s + self.pace.drain_s
        due_s = self._began_s
        for neighbour in open_ones:
            alive = neighbour.connected
            quiet_s = max(neighbour.heard_s, self._began_s) + self.pace.silence_s
            due_s = max(due_s, end_s if alive else min(end_s, quiet_s))
        if now_s < due_s:
            return (WakeAt(due_s),)
        self.phase = Phase.LEFT
        if self._leaves:
            return (End(f"left before round {self._rounds + 1}, as the faults say"),)
        return (End("finished"),)

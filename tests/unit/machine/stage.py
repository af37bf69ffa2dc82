"""A round machine on a stage: what the others and the trainer would do, one call each."""

from collections.abc import Iterable, Sequence

from peer.effects import Effect, End, Farewell, Fetch, Keep, Order, Question, Record, WakeAt
from peer.faults.plan import FaultPlan
from peer.machine import Machine, Phase
from peer.pace import Pace
from peer.record import RoundRecord
from peer.roles import Exchange
from peer.work import (
    Evaluate,
    Evaluated,
    Inspect,
    Inspected,
    Mix,
    MixDone,
    Publish,
    Published,
    Score,
    SnapshotRef,
    Train,
    TrainDone,
)
from protocol.ids import PeerId
from protocol.topology import parse_topology
from protocol.wire.codec import encode_document
from protocol.wire.messages import Epoch, Member, NotYet, Part, SnapshotManifest, View

RUN = bytes(16)
SCORE = Score(0.5, 1.0, 0.5, 1.0)


def view_of(
    states: dict[str, str], founding: Sequence[str] = (), *, counter: int = 1, founders: int = 3
) -> View:
    members = tuple(
        Member(name, "peer", state, f"tcp://127.0.0.1:{i + 1}", bytes([i]) * 32, bytes(32), 0)
        for i, (name, state) in enumerate(sorted(states.items()))
    )
    return View(RUN, "test", Epoch(1, counter), founders, tuple(founding), members)


def manifest_of(sender: str, round_no: int) -> SnapshotManifest:
    return SnapshotManifest(
        RUN, sender, Part.RESULT, round_no, b"", b"", 2, 1, 1, 1.0, 0.1, 0.0, (), ()
    )


def digest_of(sender: str, round_no: int) -> bytes:
    return f"{sender}/{round_no}".encode().ljust(32, b".")


def ref_of(sender: str, round_no: int) -> SnapshotRef:
    manifest = encode_document(manifest_of(sender, round_no))
    return SnapshotRef(manifest, digest_of(sender, round_no), f"/inbox/{sender}", 0)


class Stage:
    """Peer `a` among `others`; every call notes its effects in `said`."""

    def __init__(
        self,
        others: str = "bc",
        *,
        rounds: int = 10,
        pace: Pace | None = None,
        exchange: Exchange = Exchange.NEIGHBOURS,
        participation: float = 1.0,
        topology: str = "full",
        plan: FaultPlan | None = None,
    ) -> None:
        self.now_s = 100.0
        self.said: list[Effect] = []
        self.names = ["a", *others]
        self.machine = Machine(
            me=PeerId("a"),
            topology=parse_topology(topology),
            seed=7,
            rounds=rounds,
            pace=pace or Pace(),
            exchange=exchange,
            participation=participation,
            plan=plan,
        )

    # -- what happens -------------------------------------------------------------------------

    def found(self) -> None:
        """All are there: the run begins."""
        self.see(dict.fromkeys(self.names, "ready"), self.names)

    def see(
        self, states: dict[str, str], founding: Sequence[str] = (), *, counter: int = 1
    ) -> list[Effect]:
        return self._take(self.machine.view(view_of(states, founding, counter=counter), self.now_s))

    def up(self, *names: str) -> None:
        for name in names or self.names[1:]:
            self._take(self.machine.link_up(PeerId(name), self.now_s))

    def offer(self, name: str, round_no: int) -> list[Effect]:
        manifest, digest = manifest_of(name, round_no), digest_of(name, round_no)
        return self._take(self.machine.answered(PeerId(name), manifest, digest, self.now_s))

    def pull(self, name: str, round_no: int) -> list[Effect]:
        return self._take(self.machine.pulled(PeerId(name), ref_of(name, round_no), self.now_s))

    def judge(self, name: str, round_no: int, fault: str = "") -> list[Effect]:
        done = Inspected(name, digest_of(name, round_no), fault)
        return self._take(self.machine.inspected(done, self.now_s))

    def give(self, name: str, round_no: int) -> list[Effect]:
        """All the way from an offer to an admitted snapshot."""
        return [
            *self.offer(name, round_no),
            *self.pull(name, round_no),
            *self.judge(name, round_no),
        ]

    def not_yet(self, name: str, *, eta_s: float = 0.0, phase: str = "train") -> list[Effect]:
        asked = self.machine.round_no - 1
        news = NotYet(RUN, asked, 1, asked, phase, 0.5, eta_s)
        return self._take(self.machine.waiting(PeerId(name), news, self.now_s))

    def pass_(self, seconds: float) -> list[Effect]:
        self.now_s += seconds
        return self._take(self.machine.wake(self.now_s))

    def work(self, *, took_s: float = 0.0, published: Published | None = None) -> list[Effect]:
        """The trainer does the rest of the round that was collected."""
        self.now_s += took_s
        r, m = self.machine.round_no, self.machine
        done: list[Effect] = []
        done += self._take(m.mixed(MixDone(r, (), (), 0.0), self.now_s))
        done += self._take(m.trained(TrainDone(r, 1, 0.5, took_s), self.now_s))
        done += self._take(
            m.evaluated(Evaluated(r, SCORE, SCORE, SCORE, "trained", 0.0), self.now_s)
        )
        result = published or Published(r, ref_of("a", r), bytes(32))
        done += self._take(m.published(result, self.now_s))
        return done

    def round(self) -> RoundRecord:
        """One whole round with everybody in time; its record."""
        wanted = self.machine.round_no - 1
        if self.machine.phase is Phase.COLLECT:
            for name in self.machine.missing():
                self.give(name, wanted)
        return self.record(self.work())

    def _take(self, effects: Iterable[Effect]) -> list[Effect]:
        taken = list(effects)
        self.said += taken
        return taken

    def phase(self) -> Phase:
        return self.machine.phase

    # -- what came of it ------------------------------------------------------------------------

    @staticmethod
    def record(effects: Iterable[Effect]) -> RoundRecord:
        (record,) = (e.record for e in Stage.then(effects) if isinstance(e, Record))
        return record

    @staticmethod
    def then(effects: Iterable[Effect]) -> list[Effect]:
        """What is done once the journal holds the round."""
        return [later for e in effects if isinstance(e, Keep) for later in e.then]

    @staticmethod
    def questions(effects: Iterable[Effect]) -> list[tuple[str, int]]:
        return [(e.neighbour, e.round_no) for e in effects if isinstance(e, Question)]

    @staticmethod
    def fetches(effects: Iterable[Effect]) -> list[Fetch]:
        return [e for e in effects if isinstance(e, Fetch)]

    @staticmethod
    def farewells(effects: Iterable[Effect]) -> list[str]:
        return [e.neighbour for e in effects if isinstance(e, Farewell)]

    @staticmethod
    def wake_at(effects: Iterable[Effect]) -> float | None:
        return next((e.at_s for e in reversed(list(effects)) if isinstance(e, WakeAt)), None)

    @staticmethod
    def ended(effects: Iterable[Effect]) -> str | None:
        return next((e.reason for e in effects if isinstance(e, End)), None)

    @staticmethod
    def mix(effects: Iterable[Effect]) -> Mix | None:
        return next(
            (e.command for e in effects if isinstance(e, Order) and isinstance(e.command, Mix)),
            None,
        )

    @staticmethod
    def ordered(effects: Iterable[Effect]) -> list[type]:
        kinds = (Mix, Train, Evaluate, Publish, Inspect)
        return [
            type(e.command)
            for e in effects
            if isinstance(e, Order) and isinstance(e.command, kinds)
        ]

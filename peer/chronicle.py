"""What is told of a run: to the person who watches, and to the run directory. Decides nothing."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from peer.data import ShardFacts
from peer.display import Display
from peer.effects import Compared, Happened, Lobby, Started
from peer.entries import Past
from peer.layout import check_run
from peer.ledger import EVENTS, Ledger, read_events
from peer.options.attack import Attack
from peer.options.solvers import PrivacyOptions
from peer.record import RoundRecord
from peer.roles import Role
from peer.settings import Settings
from peer.summary import summarise
from peer.work import Prepared, Score
from protocol.clock import wall_s
from protocol.ids import PeerId

__all__ = ["Chronicle", "began_in", "run_in"]

_TOLD = {
    "lost": "{peer} is lost: {reason}",
    "returned": "{peer} is back",
    "left": "{peer} left: {reason}",
    "refused": "{peer} sent something unfit: {reason}",
    "pull-failed": "the pull from {peer} failed: {reason}",
    "coordinator-lost": "the coordinator is lost, the run goes on: {reason}",
    "coordinator-back": "the coordinator is back",
    "misbehaved": "{peer} broke the protocol and is not heard: {reason}",
    "shut-out": "{peer} is refused here: {reason}",
    "view-passed": "{peer} passed on {reason}",
    "split-view": "who is a member is told in two ways: {reason}",
    "faults-of-nobody": "the faults name {reason}: no member of this run, perhaps mistyped",
    "journal-behind": "the run goes on in memory, what --resume would need is behind: {reason}",
    "journal-current": "the journal is whole again",
}


class Chronicle:
    def __init__(
        self,
        display: Display,
        *,
        peer: PeerId,
        facts: ShardFacts | None,
        clock_s: Callable[[], float] = wall_s,
        sync: bool = True,
    ) -> None:
        """Tell of one peer.

        Args:
            display: for the person who watches.
            peer: its name.
            facts: of its data; None: a relay.
            clock_s: seconds since 1970, or those of virtual time.
            sync: keep the run directory as `Ledger` does.
        """
        self._clock_s, self._sync = clock_s, sync
        self._display = display
        self._peer = peer
        self._role = Role.RELAY if facts is None else Role.PEER
        self._domain = facts.card.domain if facts is not None else ""
        self._camp = facts.card.camp if facts is not None else 0
        self._attack = ""
        self._samples = facts.num_samples("train") if facts is not None else 0
        self._ledger: Ledger | None = None
        self._directory = Path()
        self._early: list[tuple[str, dict[str, object]]] = []  # before there was a directory
        self._alone: dict[str, Score] = {}
        self._rounds = 0
        self._resumed_after = 0
        self._behind = ""  # why the journal is
        self._lobby: Lobby | None = None

    def open(self, directory: Path, run: bytes, past: Past | None = None) -> None:
        """Write into this run directory from now on, behind what an earlier process wrote.

        Raises:
            ConfigError: it holds another run, or cannot be written.
        """
        check_run(directory, run_in(directory), run)
        records = past.records if past is not None else ()
        self._ledger = Ledger(
            directory,
            tell=self._display.line,
            clock_s=self._clock_s,
            records=records,
            sync=self._sync,
        )
        self._directory = directory
        if records:
            self._resumed_after = records[-1].round_no
            self._display.line(f"{self._peer}: goes on after round {self._resumed_after}")
        for name, fields in self._early:
            self._event(name, **fields)
        self._early.clear()

    def started(self, act: Started) -> None:
        self._rounds = act.settings.run.rounds
        prepared = act.prepared
        self._samples = prepared.num_examples  # the shard may have given some up for validation
        self._event(
            "started",
            peer=self._peer,
            role=self._role.value,
            run=act.run.hex(),
            pid=os.getpid(),
            options=dict(act.settings.flat),
            device=prepared.device,
            parameters=prepared.num_parameters,
            samples=prepared.num_examples,
            validation=prepared.num_validation,
            held_out=prepared.num_held_out,
            domain=self._domain,
            camp=self._camp,
            attack=act.attack or None,
            **({"resumed_after": self._resumed_after} if self._resumed_after else {}),
        )
        settings = act.settings
        self._display.line(
            f"{prepared.device}; {settings.method} ({settings.recipe.mixer.name} + "
            f"{settings.recipe.solver.name}), {settings.model} with {prepared.num_parameters:,} "
            f"parameters, {settings.run.rounds} rounds, topology {settings.topology.spec}"
        )
        if (privacy := settings.recipe.privacy) is not None:
            self._display.line(_told_privacy(privacy))
        if act.attack:
            self._attack = act.attack
            self._display.line(f"this peer ATTACKS the others: {Attack.parse(act.attack).told}")
        for line in (*settings.unused, *_of_serving(settings, prepared)):
            self._display.line(line)

    def lobby(self, lobby: Lobby) -> None:
        if lobby == self._lobby:
            return
        self._lobby = lobby
        self._event("lobby", ready=lobby.ready, founders=lobby.founders)
        # Enough peers, and no roster: the run is to begin with a relay.
        more = ", a relay is still to come" if lobby.ready >= lobby.founders else ""
        self._display.line(f"lobby: {lobby.ready} of {lobby.founders} here{more}")

    def round(self, record: RoundRecord) -> None:
        if self._ledger is not None:
            self._display.event(self._ledger.round(record))
        self._display.round(record, self._rounds)

    def happened(self, act: Happened) -> None:
        fields = {"reason": act.reason} if act.reason else {}
        self._event(act.event, **({"peer": act.peer} if act.peer is not None else {}), **fields)
        text = _TOLD.get(act.event, "{peer}: " + act.event + " {reason}")
        self._display.line(text.format(peer=act.peer or "", reason=act.reason))

    def journalled(self, trouble: str) -> None:
        """An entry of the journal is written; `trouble` says why it could not be.

        It is told when it begins and when it is over.
        """
        if bool(trouble) == bool(self._behind):
            return
        self._behind = trouble
        event = "journal-behind" if trouble else "journal-current"
        self.happened(Happened(event, None, trouble))

    def abandon(self) -> None:
        """Let go of the files as they are: nobody of this process will write again."""
        if self._ledger is not None:
            self._ledger.abandon()
        self._ledger = None

    def compared(self, act: Compared) -> None:
        score = act.done.score
        self._alone[act.done.solver] = score
        self._event(
            "alone",
            solver=act.done.solver,
            val_accuracy=_or_none(score.val_accuracy),
            test_accuracy=_or_none(score.test_accuracy),
        )
        name = "plain SGD" if act.done.solver == "sgd" else "the run's own solver"
        if _tested(score):
            self._display.line(f"alone with {name}: {score.test_accuracy:.1%}")

    def over(self, code: int, reason: str) -> None:
        """Sum up, and close the books."""
        if self._ledger is None:
            return
        with self._ledger as ledger:
            records = ledger.records
            self._event(
                "finished",
                rounds_finished=len(records),
                rounds_degraded=sum(r.degraded for r in records),
                reason=reason,
                code=code,
            )
            ledger.summary(
                summarise(
                    records,
                    peer=self._peer,
                    domain=self._domain,
                    camp=self._camp,
                    samples=self._samples,
                    alone=self._alone,
                    attack=self._attack,
                )
            )
        self._ledger = None
        if records and records[-1].epsilon is not None:
            self._display.line(f"differential privacy: epsilon {records[-1].epsilon:.3g} was spent")
        if records and (own := records[-1].own) is not None:
            self._tell_model(own)

    def _tell_model(self, own: Score) -> None:
        """Say where the model is, and what can be done with it."""
        folder = self._directory
        if folder.is_relative_to(here := Path.cwd()):
            folder = folder.relative_to(here)
        score = f", right on {own.test_accuracy:.1%} of its test split" if _tested(own) else ""
        self._display.line(
            f"the model of {self._peer}{score}: peer eval {folder} --data SHARD scores it on others"
        )

    def _event(self, name: str, /, **fields: object) -> None:
        if self._ledger is None:
            self._early.append((name, fields))
            return
        self._display.event(self._ledger.event(name, **fields))


def _told_privacy(privacy: PrivacyOptions) -> str:
    told = (
        f"differential privacy: clip {privacy.dp_clip:g}, noise {privacy.dp_noise:g}, "
        f"delta {privacy.dp_delta:g}"
    )
    if privacy.dp_chance == "seeded":
        told += "; the noise follows from the run's seed, which all know: IT HIDES NOTHING"
    return told


def _of_serving(settings: Settings, prepared: Prepared) -> Iterator[str]:
    """What a person must know of how the model is chosen that this peer serves, and of its cost."""
    if prepared.num_held_out:
        yield (
            f"the shard has no validation split: {prepared.num_held_out} of its "
            f"{prepared.num_held_out + prepared.num_examples} training samples are held out for it"
        )
    serve = settings.recipe.serve
    if not serve.never_worse or not prepared.num_examples:
        return
    if not prepared.num_validation:
        yield "serve.never_worse has no validation sample to go by: what is trained is served"
        return
    told = f"the model that does best on {prepared.num_validation} validation samples is served"
    if serve.twin:
        yield f"{told}; a twin trains alone beside it, which takes a second pass in each round"
    else:
        yield f"{told}; without a twin, nothing tells whether training alone would be better"


def _tested(score: Score) -> bool:
    return score.test_accuracy >= 0.0


def _or_none(accuracy: float) -> float | None:
    return accuracy if accuracy >= 0.0 else None


def run_in(directory: Path) -> str:
    """The run that a directory holds, in hex; empty if none does."""
    path = directory / EVENTS
    if not path.exists():
        return ""
    for event in read_events(path):
        if event.name == "started":
            return str(event.fields.get("run", ""))
    return ""


def began_in(directory: Path) -> float | None:
    """When the first round that a directory has a record of began, in seconds since 1970."""
    path = directory / EVENTS
    rounds = [e for e in read_events(path) if e.name == "round"] if path.exists() else []
    took_s = rounds[0].fields.get("round_s") if rounds else None
    return rounds[0].at_s - float(took_s) if isinstance(took_s, int | float) else None

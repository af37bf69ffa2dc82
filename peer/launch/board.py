"""What every process of a launch is doing, made of its lines; and when a run is lost. Pure.

Everything that is shown is read here, and every decision of the launcher is made here.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import Signals as SignalNumber

from peer.launch.processes import Ended, Line
from peer.roles import Role
from protocol.jsontext import parse_json

__all__ = ["COORDINATOR", "Board", "Failure", "PeerState"]

COORDINATOR = "coordinator"
KEPT_LINES = 40  # of a process, to find its last words in
WAITING = ("starting", "join", "lobby")  # phases before a peer's first round


@dataclass(slots=True)
class PeerState:
    name: str
    role: Role = Role.PEER
    phase: str = "starting"
    round_no: int = 0
    fraction: float = 0.0  # of the phase
    accuracy: float | None = None  # on the validation split, as trained, after the last round
    waiting_for: tuple[str, ...] = ()
    eta_s: float = 0.0
    degraded: int = 0  # rounds
    code: int | None = None  # how it ended; None while it runs


@dataclass(frozen=True, slots=True)
class Failure:
    name: str
    code: int
    words: str  # its own last ones


@dataclass(slots=True)
class Board:
    """Hears what processes say; tells what is worth a line of its own."""

    peers: Mapping[str, PeerState]  # a relay among them, as the last
    rounds: int
    join_string: str = ""  # the coordinator's first line
    failures: list[Failure] = field(default_factory=list)
    begun: bool = False  # a peer has left the lobby: the roster is fixed
    restarts: int = 0  # of each node that dies by itself
    closing: bool = False  # everybody has been asked to end: no end is a failure any more
    to_start: list[str] = field(default_factory=list)  # again; whoever does it empties the list
    frozen: set[str] = field(default_factory=set)  # by a fault, and still so
    _excused: set[str] = field(default_factory=set)  # whose end is the faults' doing
    _restarted: dict[str, int] = field(default_factory=dict)
    _errors: dict[str, deque[str]] = field(default_factory=dict)  # by name: lines on stderr

    @classmethod
    def of(
        cls, names: Sequence[str], rounds: int, *, relay: str | None = None, restarts: int = 0
    ) -> "Board":
        peers = {name: PeerState(name) for name in names}
        relays = {} if relay is None else {relay: PeerState(relay, Role.RELAY)}
        return cls({**peers, **relays}, rounds, restarts=restarts)

    @property
    def all_ended(self) -> bool:
        return all(peer.code is not None for peer in self.peers.values())

    def excuse(self, name: str) -> None:
        """Its end will be a fault's doing, and nobody's failure."""
        self._excused.add(name)

    def is_excused(self, name: str) -> bool:
        """It is about to end by a fault."""
        return name in self._excused

    def started(self, name: str) -> None:
        """It runs, for the first time or again."""
        self._excused.discard(name)
        if (peer := self.peers.get(name)) is not None:
            peer.code, peer.phase, peer.fraction = None, "starting", 0.0

    @property
    def rounds_reached(self) -> Mapping[str, int]:
        return {name: peer.round_no for name, peer in self.peers.items()}

    @property
    def doomed(self) -> bool:
        """The run cannot begin: a founder or the coordinator has ended before the first round.

        Once it has begun, nobody's end is another's: the others finish and keep what they have.
        """
        return not self.begun and bool(self.failures)

    @property
    def exit_code(self) -> int:
        """2 when an operator can mend a failure, 1 when it is ours, 0 without one."""
        codes = {failure.code for failure in self.failures}
        return 2 if 2 in codes else 1 if codes else 0

    def hear(self, line: Line) -> str | None:
        """Take a line in; what it returns is worth showing."""
        if line.is_error:
            self._errors.setdefault(line.name, deque(maxlen=KEPT_LINES)).append(line.text)
            return None
        if line.name == COORDINATOR:
            self.join_string = self.join_string or line.text.strip()
            return None
        event = _parsed(line.text)
        return self._take(self.peers[line.name], event) if event else None

    def end(self, ended: Ended) -> str | None:
        """Take an end in; what it returns is worth showing."""
        peer = self.peers.get(ended.name)
        if peer is not None:
            peer.code, peer.waiting_for = ended.code, ()
            peer.phase = "stopped" if self.closing else "done" if ended.code == 0 else "failed"
        if ended.name in self._excused and not self.closing:
            if peer is not None:
                peer.phase = "killed"
            return None
        if peer is not None and ended.name in self.frozen and self.closing:
            peer.phase = "frozen"  # to the end: it could not hear that it was asked to end
        if self.closing or (peer is not None and ended.code == 0 and self.begun):
            return None
        words = self._last_words(ended)
        if self._may_restart(ended):
            self.to_start.append(ended.name)
            return f"{ended.name} has died and is started again: {words}"
        if peer is not None or not self.begun:  # once the run has begun, no peer needs it
            self.failures.append(Failure(ended.name, ended.code or 1, words))
        return f"{ended.name} has failed: {words}"

    def _may_restart(self, ended: Ended) -> bool:
        """Another try may help, but for what the operator must change."""
        done = self._restarted.get(ended.name, 0)
        if ended.code in {0, 2} or done >= self.restarts:
            return False
        self._restarted[ended.name] = done + 1
        return True

    def _take(self, peer: PeerState, event: Mapping[str, object]) -> str | None:
        match event.get("event"):
            case "progress":
                peer.phase = str(event.get("phase", ""))
                peer.round_no = int(_number(event, "round"))
                peer.fraction = _number(event, "fraction")
                peer.eta_s = _number(event, "eta_s")
                waiting = event.get("waiting_for")
                peer.waiting_for = tuple(map(str, waiting)) if isinstance(waiting, list) else ()
                self.begun = self.begun or peer.round_no > 0
            case "round":
                peer.round_no = int(_number(event, "round"))
                peer.degraded += event.get("degraded") is True
                trained = event.get("trained")
                accuracy = trained.get("val_accuracy") if isinstance(trained, dict) else None
                peer.accuracy = accuracy if isinstance(accuracy, float | int) else None
                self.begun = True
            case "lost" | "returned" as event_name:
                return f"{peer.name}: {event_name} {event.get('peer', '')}"
            case "coordinator-lost" | "coordinator-back" as event_name:
                return f"{peer.name}: {str(event_name).replace('-', ' ')}"
            case _:
                pass
        return None

    def _last_words(self, ended: Ended) -> str:
        """Find its error with the hint under it, else its last line, else say how it ended."""
        lines = [line for line in self._errors.get(ended.name, ()) if line.strip()]
        told = [at for at, line in enumerate(lines) if line.startswith("Error: ")]
        if told:
            first, *rest = lines[told[-1] :]
            hints = [line.strip() for line in rest if line.startswith("  ")]
            return " - ".join([first.removeprefix("Error: "), *hints])
        how = _how(ended.code)
        return f"{how}; it said last: {lines[-1].strip()}" if lines else how


def _how(code: int) -> str:
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was killed by {SignalNumber(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"


def _parsed(text: str) -> Mapping[str, object] | None:
    """Read an event; what is none is no more than a line."""
    try:
        raw = parse_json(text)
    except ValueError:
        return None
    return raw if isinstance(raw, dict) else None


def _number(event: Mapping[str, object], key: str) -> float:
    value = event.get(key)
    return float(value) if isinstance(value, int | float) else 0.0

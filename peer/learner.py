"""What a peer's trainer carries from round to round, and how another process takes it up."""

from dataclasses import dataclass, field

from peer.bench import Bench
from peer.common import CommonModel
from peer.inspection import Inspector
from peer.memory import Memory
from peer.mixers.base import Mixer
from peer.publishing import Shelving
from peer.solvers.base import Solver
from peer.twin import Twin
from peer.work import SnapshotRef
from protocol.codecs import Coder
from protocol.params import NO_STATE, State
from protocol.round import Start, Trained
from protocol.steps import Stepper

__all__ = ["Learner", "go_on", "memory_of"]


@dataclass(slots=True, eq=False)
class Learner:
    """What a peer carries from round to round, once it is prepared."""

    bench: Bench
    mixer: Mixer
    solver: Solver
    mixer_state: State
    solver_state: State
    start: Start  # where this round's training begins; once nothing needs it, the result
    trained: Trained  # the newest result, in full; from MIX to TRAIN, the start in its place
    sent: Trained  # what the others are told in its place: the same, unless this peer attacks
    round_no: int  # of that result; 0 is the initial model
    inspector: Inspector
    coder: Coder
    stepper: Stepper | None  # where the run's codec sends steps
    shelving: Shelving
    common: CommonModel | None = None  # where one start is common to all
    base: bytes = b""  # digest of the start point that `trained` came from
    memory: bytes = b""  # of the aggregator's memory there
    degree: int = 0
    num_rounds: int = 0  # trained so far: the budget of those who train alone
    published: SnapshotRef | None = None  # the newest result as all others can have it
    unsaved: str = ""  # why the personal model of this round could not be written
    twin: Twin | None = None
    twin_state: State = field(default_factory=lambda: NO_STATE)


def memory_of(learner: Learner) -> Memory:
    """What another process needs to go on after this round."""
    states = {"mixer": learner.mixer_state, "solver": learner.solver_state}
    states["twin"] = learner.twin_state
    if learner.common is not None:
        states["common"] = learner.common.state
    return Memory(
        round_no=learner.round_no,
        trained=learner.trained,
        sent=learner.sent if learner.sent is not learner.trained else None,
        states=states,
        norms=learner.inspector.norms,
        base=learner.base,
        aggregator=learner.memory,
        degree=learner.degree,
        num_rounds=learner.num_rounds,
    )


def go_on(learner: Learner, memory: Memory) -> None:
    """Be where an earlier process was when it had published a round."""
    admit = learner.bench.settings.admit
    learner.mixer_state = memory.states.get("mixer", NO_STATE)
    learner.solver_state = memory.states.get("solver", NO_STATE)
    if learner.twin is not None:
        learner.twin_state = memory.states["twin"]
    if learner.common is not None:
        learner.common.restore(memory.states["common"])
    learner.trained, learner.round_no = memory.trained, memory.round_no
    learner.sent = memory.sent or memory.trained
    learner.start = Start(memory.trained.params, memory.trained.buffers)
    learner.base, learner.memory = memory.base, memory.aggregator
    learner.degree, learner.num_rounds = memory.degree, memory.num_rounds
    learner.inspector = Inspector(
        admit, lambda: learner.trained.params, memory.norms, coder=learner.coder
    )
    learner.shelving = Shelving(learner.bench.directory, newest=memory.round_no)

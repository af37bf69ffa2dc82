"""One peer's learning, round by round: data, model, mixer and solver, and what they remember.

Takes the commands of peer/work.py and gives their replies; reads and writes snapshots in the run
directory. Knows no socket, no neighbour beyond its name, and no other peer's data. The trainer
process runs it behind a pipe; a simulator may call it directly.
"""

import time
from dataclasses import replace
from typing import assert_never

from peer.admission import first_unfinite
from peer.bench import Bench
from peer.common import CommonModel
from peer.evidence import finite, mix_done
from peer.exchange import Origin, digest_of, read_contribution, sections_of
from peer.forms import Forms
from peer.inspection import Inspector
from peer.learner import Learner, go_on, memory_of
from peer.memory import read_memory
from peer.mixers.replicated import Replicated
from peer.models.pool import ModelPool
from peer.options.entry import Need
from peer.publishing import (
    Shelving,
    as_read,
    coded,
    published_before,
    remembered,
    state_of,
    stepped,
    update_of,
)
from peer.serving import serve, served_by
from peer.solvers.base import Progress
from peer.solvers.reference import with_relay_model
from peer.starts import arrive, owned
from peer.twin import Twin, halves, silent, train_twin
from peer.work import (
    Adopt,
    Adopted,
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
    Train,
    TrainDone,
)
from protocol.errors import DataError, LocalProtocolError
from protocol.ids import PeerId
from protocol.params import NO_STATE, NOTHING
from protocol.round import Contribution, Mixed, Start, Trained
from protocol.steps import Stepper
from protocol.wire.fields import as_text
from protocol.wire.messages import Part

__all__ = ["Trainer"]


class Trainer:
    def __init__(self, pool: ModelPool | None = None) -> None:
        """Make a trainer without work yet.

        Args:
            pool: models that it shares with the other trainers of this process.
        """
        self._pool = pool or ModelPool()
        self._learner: Learner | None = None

    def carry_out(self, command: Command, progress: Progress) -> Reply | None:
        """Do as the node says; None for the order to quit.

        Raises:
            KinfolkError: as the command's own method.
            OSError: the disk is full.
        """
        match command:
            case Prepare():
                return self.prepare(command)
            case Inspect():
                return self.inspect(command)
            case Mix():
                return self.mix(command)
            case Adopt():
                return self.adopt(command)
            case Train():
                return self.train(command, progress)
            case Evaluate():
                return self.evaluate(command)
            case Publish():
                return self.publish(command)
            case Alone():
                return self.alone(command, progress)
            case Quit():
                return None
            case _:
                assert_never(command)

    # -- PREPARE -----------------------------------------------------------------------------

    def prepare(self, command: Prepare) -> Prepared:
        """Load the data, build the model, make the initial point.

        Raises:
            OperatorError: the shard, the model or a setting cannot be used.
        """
        bench = Bench.set_up(command, self._pool)
        start = bench.initial()
        initial = replace(
            bench.method.opening(bench.model),
            num_examples=bench.task.num_examples,
            class_counts=bench.task.class_counts,
        )
        mixer, solver = bench.method.mixer, bench.method.solver
        forms = Forms.of(mixer.share(initial, bench.model.head), bench.settings.share)
        twin = Twin(solver) if bench.has_twin else None
        self._learner = Learner(
            bench=bench,
            mixer=mixer,
            solver=solver,
            mixer_state=mixer.init(start),
            solver_state=solver.init(start),
            start=start,
            trained=initial,
            sent=initial,
            round_no=0,
            inspector=Inspector(
                bench.settings.admit, lambda: self._ready().trained.params, coder=forms.coder
            ),
            coder=forms.coder,
            stepper=forms.stepper,
            shelving=Shelving(bench.directory),
            common=(
                CommonModel(mixer, start, bench.settings.recipe.needs)
                if isinstance(mixer, Replicated)
                else None
            ),
            twin=twin,
            twin_state=twin.init(start) if twin is not None else NO_STATE,
        )
        if command.memory:
            go_on(self._learner, read_memory(bench.directory, command.memory, bench.device))
            self._learner.published = next(iter(command.published), None)
        return replace(
            forms.prepared(start, bench.settings.exchange, bench.told),
            num_examples=bench.task.num_examples,
            class_counts=bench.task.class_counts,
            num_validation=len(bench.val),
            num_held_out=bench.num_held_out,
        )

    # -- admission ---------------------------------------------------------------------------

    def inspect(self, command: Inspect) -> Inspected:
        """Look at a neighbour's parameters before they may be mixed."""
        return self._ready().inspector.inspect(command)

    # -- MIX -----------------------------------------------------------------------------------

    def mix(self, command: Mix) -> MixDone:
        """Make the start point of a round out of the own result and the neighbours'."""
        began_s = time.perf_counter()
        learner = self._ready()
        device = learner.bench.device
        others = [
            read_contribution(
                part.snapshot, freshness=part.freshness, device=device, coder=learner.coder
            )
            for part in command.inputs
        ]
        mixed = self._mixed(learner, others, command)
        done = mix_done(command.round_no, mixed, time.perf_counter() - began_s)
        if not isinstance(mixed, Mixed):
            return done
        learner.start = owned(mixed.start)
        if learner.common is None and Need.RELAY_MODEL in learner.bench.settings.recipe.needs:
            learner.start = with_relay_model(learner.start, PeerId(command.relay), others)
        learner.degree = command.degree
        # The start is all that training needs: a peer that waits for its turn costs one model.
        learner.trained = learner.sent = replace(
            learner.trained,
            params=learner.start.params,
            buffers=learner.start.buffers,
            extras=NOTHING,
            personal=None,
        )
        return done

    def _mixed(self, learner: Learner, others: list[Contribution], command: Mix) -> Mixed | PeerId:
        bench = learner.bench
        own = Contribution(
            sender=bench.peer,
            round_no=learner.round_no,
            base=learner.base,
            memory=learner.memory,
            degree=learner.degree,
            trained=learner.trained,
        )
        if learner.common is not None or (bench.attack is None and learner.stepper is None):
            own = replace(own, trained=learner.sent)  # as published: all mix the same values
        if learner.common is not None:
            return learner.common.mix(own if learner.round_no else None, others, command)
        if learner.round_no == 0 and others:
            mixed = arrive(learner.trained, others)
            learner.mixer_state = learner.mixer.init(mixed.start)
            learner.solver_state = learner.solver.init(mixed.start)
            return mixed
        with bench.seeded("mix", command.round_no) as seed:
            probe = bench.probe(learner.trained.buffers, seed)
            mixed, learner.mixer_state = learner.mixer.mix(learner.mixer_state, own, others, probe)
        return mixed

    def adopt(self, command: Adopt) -> Adopted:
        """Take over the common start and memory of a neighbour."""
        common = self._ready().common
        fault = "this method has no common model" if common is None else common.adopt(command)
        return Adopted(command.neighbour, as_text(fault))

    # -- TRAIN -----------------------------------------------------------------------------------

    def train(self, command: Train, progress: Progress) -> TrainDone:
        """Train from the round's start point; a result that is not finite is thrown away."""
        began_s = time.perf_counter()
        learner = self._ready()
        ours, twins = (progress, silent) if learner.twin is None else halves(progress)
        with learner.bench.seeded("train", command.round_no) as seed:
            trained, state = learner.bench.method.train(
                learner.solver_state, learner.start, learner.bench.task, seed, ours
            )
        loss = trained.train_loss
        points = (trained.params, trained.buffers, trained.extras, trained.personal or {})
        if all(first_unfinite(point) is None for point in points):
            learner.solver_state = state
        else:
            opening = learner.bench.method.opening(learner.bench.model)
            trained = replace(
                trained,
                params=learner.start.params,
                buffers=learner.start.buffers,
                extras=opening.extras,
                personal=None,
            )
        learner.trained, learner.round_no = trained, command.round_no
        learner.sent = learner.bench.shared(trained, learner.start, command.round_no)
        learner.num_rounds += 1
        learner.base = digest_of(learner.start.params)
        learner.memory = learner.common.memory if learner.common is not None else b""
        seconds = time.perf_counter() - began_s
        learner.twin_state, twin_s = train_twin(
            learner.twin, learner.twin_state, learner.bench, command.round_no, twins
        )
        spent = learner.bench.epsilon(trained.num_steps * learner.num_rounds)
        return TrainDone(command.round_no, trained.num_steps, finite(loss), seconds, spent, twin_s)

    # -- EVALUATE, PUBLISH ---------------------------------------------------------------------

    def evaluate(self, command: Evaluate) -> Evaluated:
        """Score the round's start point and result; write the model that the peer serves."""
        began_s = time.perf_counter()
        learner = self._ready()
        twin = learner.twin.serves(learner.twin_state) if learner.twin is not None else None
        found = serve(learner.bench, learner.start, learner.trained, twin)
        learner.unsaved, point = "", found.point
        try:
            learner.bench.save_model(point.params, point.buffers, command.round_no, point.name)
        except DataError as error:  # the one before stays; the round goes on
            learner.unsaved = str(error.args[0])
        if not command.update:
            _let_go(learner)
        return found.told(command.round_no, time.perf_counter() - began_s)

    def publish(self, command: Publish) -> Published:
        """Write what is served from now on and what is remembered; drop the round before the last.

        A full disk ends nothing: the reply says what could not be written.

        Raises:
            OSError: there is no room for the snapshot, neither on disk nor in memory.
        """
        learner = self._ready()
        if command.round_no != learner.round_no:
            raise LocalProtocolError(
                f"asked to publish round {command.round_no}, the result is of {learner.round_no}"
            )
        origin = Origin(
            run=learner.bench.run,
            sender=learner.bench.peer,
            round_no=command.round_no,
            base=learner.base,
            memory=learner.memory,
            degree=learner.degree,
        )
        shared = learner.mixer.share(learner.sent, learner.bench.model.head)
        more: list[tuple[Origin, Trained]] = []
        if shared is not None and learner.common is not None:
            state = state_of(learner.common.state, shared)
            more.append((replace(origin, part=Part.STATE), state))
        if shared is not None and command.update:
            update = update_of(learner.start, learner.sent, shared)
            more.append((replace(origin, part=Part.UPDATE), update))
        if shared is not None and learner.stepper is not None:
            shared, step = _stepped(learner, learner.stepper, shared)
            if step is not None and learner.published is not None:
                base = learner.published.digest
                more.append((replace(origin, part=Part.STEP, base=base), step))
        elif shared is not None and not learner.coder.is_exact:
            shared, learner.sent = coded(learner.coder, shared, learner.sent)
        published = learner.shelving.publish(origin, shared, more, kept=command.kept)
        learner.published = published.snapshot
        published = remembered(
            learner.bench.directory, published, memory_of(learner), shared, learner.unsaved
        )
        _let_go(learner)
        return published

    # -- after the run -----------------------------------------------------------------------------

    def alone(self, command: Alone, progress: Progress) -> AloneDone:
        """Train one model on the own data alone, with as many rounds from the same start."""
        began_s = time.perf_counter()
        bench = self._ready().bench
        solver = bench.alone_solver(command.solver)
        model = solver.adapt(bench.raw)
        task = bench.method.task(model, bench.task.examples)
        start, state = model.start, solver.init(model.start)
        params, buffers = start.params, start.buffers
        rounds = self._ready().num_rounds
        for round_no in range(1, rounds + 1):
            with bench.seeded("train", round_no) as seed:
                trained, state = solver.train(state, start, task, seed, silent)
            start = Start(trained.params, trained.buffers)
            params, buffers = served_by(trained)
            progress(round_no, rounds)
        score = bench.score(params, buffers, model)
        return AloneDone(command.solver, score, time.perf_counter() - began_s)

    def _ready(self) -> Learner:
        if self._learner is None:
            raise LocalProtocolError("the trainer was given work before Prepare")
        return self._learner


def _let_go(learner: Learner) -> None:
    """Nothing needs where the round began any more: a peer at rest costs one model."""
    learner.start = Start(learner.trained.params, learner.trained.buffers)


def _stepped(learner: Learner, stepper: Stepper, shared: Trained) -> tuple[Trained, Trained | None]:
    """What is published in place of what is shared, and the step to it, if there is one.

    With a common model the peer itself goes on from what is published, as all others do; else it
    keeps its own result, which holds what no step has carried yet.
    """
    shared, step = stepped(stepper, published_before(learner.published), shared)
    if learner.common is not None:
        learner.sent = as_read(learner.sent, sections_of(shared))
    return shared, step

"""Workers of a simulation: the same answers as this process gives, in order; told when one dies."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from peer.options.fields import Value
from peer.roles import Role
from peer.settings import complete
from peer.simulation.engine import Engine
from peer.simulation.here import InProcess, one_thread
from peer.simulation.workers import WorkerLost, Workers
from peer.work import (
    Command,
    Evaluate,
    Evaluated,
    Failed,
    Mix,
    MixDone,
    Prepare,
    Prepared,
    Publish,
    Published,
    Reply,
    Setting,
    Train,
    TrainDone,
)
from protocol.errors import LocalProtocolError
from protocol.ids import PeerId
from tests.unit.training.classroom import RUN, write_digits

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")
FACTS: dict[str, Value] = {"data.input": "1x8x8", "data.classes": 10, "model": "mlp"}
ROUND: tuple[Command, ...] = (Mix(1, 0, (), ()), Train(1), Evaluate(1), Publish(1))


def prepare(name: str, shard: Path, folder: Path) -> Prepare:
    settings = tuple(Setting(k, v) for k, v in complete(FACTS).items())
    (folder / name).mkdir(parents=True, exist_ok=True)  # as the peer's chronicle does
    return Prepare(name, Role.PEER, RUN, settings, str(shard), "cpu", str(folder / name))


def shards(folder: Path) -> dict[PeerId, Path]:
    return {
        name: write_digits(folder / f"{name}.npz", first=150 * n, num=32, num_test=10)
        for n, name in enumerate((A, B, C))
    }


def played(engine: Engine, data: dict[PeerId, Path], folder: Path) -> dict[PeerId, list[Reply]]:
    """Begin everything before anything is asked for; no time, and no path that differs."""
    pending = {
        name: [engine.submit(name, order) for order in (prepare(name, shard, folder), *ROUND)]
        for name, shard in data.items()
    }
    answers = {name: [answer() for answer in those] for name, those in pending.items()}
    return {name: [_untimed(reply, folder) for reply in those] for name, those in answers.items()}


def _untimed(reply: Reply, folder: Path) -> Reply:
    match reply:
        case Published():
            path = str(Path(reply.snapshot.path).relative_to(folder))
            return replace(reply, snapshot=replace(reply.snapshot, path=path))
        case TrainDone():
            return replace(reply, seconds=0.0, twin_seconds=0.0)
        case MixDone() | Evaluated():
            return replace(reply, seconds=0.0)
        case _:
            return reply


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2, 3])
def test_workers_answer_as_this_process_does(tmp_path: Path, count: int) -> None:
    data = shards(tmp_path)
    with one_thread():
        expected = played(InProcess(), data, tmp_path / "here")
    before = set(psutil.Process().children())
    workers = Workers(count)
    try:
        assert played(workers, data, tmp_path / "there") == expected
    finally:
        workers.close()
    assert set(psutil.Process().children()) == before
    kinds = [type(reply) for reply in expected[A]]
    assert kinds == [Prepared, MixDone, TrainDone, Evaluated, Published]


@pytest.mark.long
@pytest.mark.parametrize("asked", [(A, B, C), (C, B, A)])
def test_a_worker_trains_few_peers_ahead_of_their_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[PeerId, ...]
) -> None:
    monkeypatch.setattr("peer.simulation.workers.AHEAD", 1)
    data = shards(tmp_path)
    with one_thread():
        expected = played(InProcess(), data, tmp_path / "here")
    workers = Workers(1)
    try:
        worker: Any = workers._workers[0]
        for name in data:
            assert isinstance(
                workers.submit(name, prepare(name, data[name], tmp_path / "there"))(), Prepared
            )
            assert isinstance(workers.submit(name, ROUND[0])(), MixDone)
        training = {name: workers.submit(name, Train(1)) for name in data}
        assert (worker._two_models, list(worker._held)) == ({A}, [B, C])
        for name in asked:
            assert _untimed(training[name](), tmp_path) == expected[name][2]
            evaluated = workers.submit(name, Evaluate(1))()
            assert _untimed(evaluated, tmp_path) == expected[name][3]
            assert name not in worker._two_models
        assert not worker._held
        # In turn nobody is asked for before it was sent. In reverse C is, which makes room for B.
        assert worker._ahead == (1 if asked == (A, B, C) else 2)
        late = workers.submit(A, Train(2))
        workers.forget(A)
        assert isinstance(late(), TrainDone)
        assert not worker._two_models
    finally:
        workers.close()


def test_a_worker_tells_what_a_person_must_change_forgets_and_dies_aloud(tmp_path: Path) -> None:
    data = shards(tmp_path)
    before = set(psutil.Process().children())
    workers = Workers(1)
    try:
        missing = workers.submit(B, prepare("b", tmp_path / "none.npz", tmp_path))()
        assert isinstance(missing, Failed)
        assert missing.operator
        assert "none.npz" in missing.reason
        assert not isinstance(workers.submit(A, prepare("a", data[A], tmp_path))(), Failed)
        workers.forget(A)
        assert not isinstance(workers.submit(A, prepare("a", data[A], tmp_path))(), Failed)
        (child,) = set(psutil.Process().children()) - before
        os.kill(child.pid, signal.SIGSTOP)
        waiting = workers.submit(A, Mix(1, 0, (), ()))
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="killed by SIGKILL: is the memory used up"):
            waiting()
        with pytest.raises(WorkerLost, match="a worker of the simulation has ended"):
            workers.submit(A, Mix(1, 0, (), ()))
        workers.forget(A)  # which is a comfort
    finally:
        workers.close()


def learner_of(engine: InProcess, name: PeerId) -> Any:
    """What a trainer remembers."""
    trainer: Any = engine._trainers[name]
    return trainer._learner


def test_trainers_of_one_process_share_a_model_and_work_that_nobody_prepared_is_refused(
    tmp_path: Path,
) -> None:
    data, engine = shards(tmp_path), InProcess()
    for name in (A, B):
        engine.submit(name, prepare(name, data[name], tmp_path))
    a, b = (learner_of(engine, name) for name in (A, B))
    assert a.bench.model is b.bench.model
    assert a.start.params is b.start.params
    with pytest.raises(LocalProtocolError, match="c was given work before Prepare"):
        engine.submit(C, Train(1))
    engine.forget(A)
    with pytest.raises(LocalProtocolError, match="a was given work"):
        engine.submit(A, Train(1))


def models_held(learner: Any) -> float:
    """By start, newest result and what is told in its place."""
    points = (learner.start.params, learner.trained.params, learner.sent.params)
    held = {tensor.data_ptr() for point in points for tensor in point.values()}
    return len(held) / len(learner.trained.params)


def test_a_peer_holds_two_models_from_training_to_evaluation_only(tmp_path: Path) -> None:
    engine = InProcess()
    engine.submit(A, prepare(A, shards(tmp_path)[A], tmp_path))
    learner = learner_of(engine, A)
    for round_no in (1, 2):
        engine.submit(A, Mix(round_no, 0, (), ()))
        trained = engine.submit(A, Train(round_no))
        assert models_held(learner) == 1.0, "it is not trained before anybody asks"
        assert trained() is trained()
        assert models_held(learner) == 2.0
        engine.submit(A, Evaluate(round_no))
        assert models_held(learner) == 1.0
        engine.submit(A, Publish(round_no))
        assert models_held(learner) == 1.0


def test_the_start_is_kept_until_a_relay_has_its_update(tmp_path: Path) -> None:
    engine = InProcess()
    ready = prepare(A, shards(tmp_path)[A], tmp_path)
    for order in (ready, Mix(1, 0, (), (), "hub"), Train(1), Evaluate(1, update=True)):
        engine.submit(A, order)
    assert models_held(learner_of(engine, A)) == 2.0
    published = engine.submit(A, Publish(1, update=True))()
    assert isinstance(published, Published)
    assert len(published.more) == 1
    assert models_held(learner_of(engine, A)) == 1.0


def test_training_that_was_put_off_is_done_before_the_next_order(tmp_path: Path) -> None:
    engine = InProcess()
    for order in (prepare(A, shards(tmp_path)[A], tmp_path), *ROUND[:2]):
        engine.submit(A, order)
    assert isinstance(engine.submit(A, Evaluate(1))(), Evaluated)
    engine.submit(A, Publish(1))
    assert isinstance(engine.submit(A, Mix(2, 0, (), ()))(), MixDone)
    engine.submit(A, Train(2))
    engine.forget(A)
    with pytest.raises(LocalProtocolError, match="a was given work"):
        engine.submit(A, Evaluate(2))

"""A round machine that goes on where the one of an earlier process was."""

from collections.abc import Iterable

from peer.effects import Effect, Keep, Record, Serve
from peer.entries import Collected, Finished, Past
from peer.machine import Phase
from peer.record import RoundRecord
from peer.work import Published
from tests.unit.machine.stage import Stage, ref_of


def entries(effects: Iterable[Effect]) -> list[Collected | Finished]:
    return [e.entry for e in effects if isinstance(e, Keep)]


def newest(stage: Stage) -> tuple[Finished | None, Collected | None]:
    """What a journal would give back of all that the machine had written."""
    kept = entries(stage.said)
    finished = [e for e in kept if isinstance(e, Finished)]
    after = finished[-1].round_no if finished else 0
    collected = [e for e in kept if isinstance(e, Collected) and e.after == after]
    return (finished[-1] if finished else None), (collected[-1] if collected else None)


def heir(finished: Finished | None, collected: Collected | None, **options: int) -> Stage:
    """The next process, when its view has come."""
    stage = Stage(**options)  # type: ignore[arg-type]
    stage.machine.recall(Past(finished, collected))
    stage.found()
    return stage


def played(rounds: int) -> Stage:
    """A peer that has finished so many rounds, and asks for the next."""
    stage = Stage()
    stage.found()
    stage.up()
    for _ in range(rounds):
        stage.round()
    return stage


def served(effects: Iterable[Effect]) -> list[int]:
    return [e.round_no for e in effects if isinstance(e, Serve)]


def test_nothing_is_shown_before_it_is_kept() -> None:
    stage = played(2)
    assert not any(isinstance(e, Serve | Record) for e in stage.said)
    last = [e for e in stage.said if isinstance(e, Keep) and isinstance(e.entry, Finished)][-1]
    assert [type(later) for later in last.then] == [Serve, Record]


def test_it_serves_the_last_rounds_and_asks_for_the_next() -> None:
    stage = played(3)
    finished, _ = newest(stage)
    assert finished is not None
    assert [p.round_no for p in finished.before] == []  # the stage's trainer has kept none of them
    again = heir(finished, None)
    assert again.phase() is Phase.COLLECT
    assert again.machine.round_no == 4
    assert served(again.said) == [3]
    assert again.questions(again.said) == [("b", 3), ("c", 3)]


def test_the_round_before_is_served_too_where_the_disk_has_it() -> None:
    stage = played(1)
    stage.give("b", 1)
    stage.give("c", 1)
    done = Published(2, ref_of("a", 2), bytes(32), memory=bytes(32))
    stage.work(published=done)
    stage.give("b", 2)
    stage.give("c", 2)
    stage.work()
    finished, _ = newest(stage)
    assert served(heir(finished, None).said) == [2, 3]


def test_what_was_collected_is_mixed_again_and_the_record_is_the_same() -> None:
    stage = played(1)
    stage.give("b", 1)
    stage.pass_(400.0)  # c is given up
    finished, collected = newest(stage)
    meant = stage.record(stage.work())
    again = heir(finished, collected)
    assert again.phase() is Phase.MIX
    assert again.mix(again.said) == stage.mix(reversed(stage.said))
    record = again.record(again.work())
    assert (record.used, record.missing) == ({"b": 1}, ("c",))
    assert same(record) == same(meant)


def test_without_any_finished_round_the_first_is_mixed_again() -> None:
    stage = Stage()
    stage.found()
    _, collected = newest(stage)
    again = heir(None, collected)
    assert again.phase() is Phase.MIX
    assert again.record(again.work()).round_no == 1


def test_what_is_known_good_of_a_neighbour_is_remembered() -> None:
    stage = played(2)
    finished, _ = newest(stage)
    again = heir(finished, None)
    held = again.machine.neighbours["b"].good  # type: ignore[index]
    assert held is not None
    assert held.round_no == 1


def test_after_the_last_round_it_serves_until_the_others_are_done() -> None:
    stage = Stage(rounds=2)
    stage.found()
    stage.up()
    for _ in range(2):
        stage.round()
    finished, _ = newest(stage)
    again = heir(finished, None, rounds=2)
    assert again.phase() is Phase.DRAIN
    assert sorted(again.farewells(again.said)) == ["b", "c"]
    assert served(again.said) == [2]


def same(record: RoundRecord) -> object:
    return (
        record.round_no, record.used, record.stale, record.missing, record.refused,
        record.skipped, record.digest, record.degraded,
    )  # fmt: skip

"""When a step is enough, and when a neighbour is asked for the whole result."""

from dataclasses import replace

import pytest

from peer.effects import Effect, Fetch, Onward, Question, Serve
from peer.roles import Exchange
from peer.work import MixDone, Published
from protocol.ids import PeerId
from protocol.wire.link_effects import Step
from protocol.wire.messages import Part
from tests.unit.machine.stage import Stage, digest_of, manifest_of, ref_of, view_of

B = PeerId("b")


def holds(effects: list[Effect]) -> dict[str, bytes]:
    """By neighbour, what it is told that we hold."""
    return {e.neighbour: e.holds for e in effects if isinstance(e, Question)}


def step(sender: str, round_no: int, base: bytes) -> Step:
    manifest = replace(manifest_of(sender, round_no), part=Part.STEP, base=base)
    return Step(manifest, f"step {round_no}".encode())


def in_round_three() -> tuple[Stage, list[Effect]]:
    """A peer that has the results of round 1 and asks for those of round 2."""
    stage = Stage()
    stage.found()
    stage.up()
    stage.work()
    stage.give("b", 1)
    stage.give("c", 1)
    return stage, stage.work()


def offered(stage: Stage, found: Step, round_no: int = 2) -> Fetch:
    told = manifest_of("b", round_no), digest_of("b", round_no)
    effects = stage.machine.answered(B, *told, stage.now_s, found)
    (fetch,) = stage.fetches(effects)
    return fetch


def test_the_first_question_says_that_nothing_is_held_and_later_ones_what_came_last() -> None:
    stage = Stage()
    stage.found()
    stage.up()
    assert holds(stage.work()) == {"b": b"", "c": b""}
    stage.give("b", 1)
    stage.give("c", 1)
    assert holds(stage.work()) == {"b": digest_of("b", 1), "c": digest_of("c", 1)}


def test_a_step_from_what_is_here_is_fetched_in_place_of_the_result() -> None:
    stage, _ = in_round_three()
    found = step("b", 2, digest_of("b", 1))
    fetch = offered(stage, found)
    assert (fetch.digest, fetch.onward) == (digest_of("b", 2), Onward(ref_of("b", 1), found))
    assert stage.judge("b", 2) == []  # it is not here yet
    stage.pull("b", 2)
    stage.judge("b", 2)
    assert stage.machine.missing() == ("c",)


def test_a_step_from_something_else_is_not_fetched() -> None:
    stage, _ = in_round_three()
    assert offered(stage, step("b", 2, digest_of("b", 7))).onward is None


def test_a_step_that_failed_is_followed_by_the_whole_result() -> None:
    stage, _ = in_round_three()
    found = step("b", 2, digest_of("b", 1))
    assert offered(stage, found).onward is not None
    again = list(stage.machine.pull_failed(B, "the step of w does not lead there", stage.now_s))
    assert holds(again) == {"b": b""}
    assert offered(stage, found).onward is None  # though it is offered once more
    stage.pull("b", 2)
    stage.judge("b", 2)
    stage.give("c", 2)
    assert holds(stage.work())["b"] == digest_of("b", 2)  # and trusted again in the next round


def test_a_result_from_which_a_step_failed_is_not_stepped_from_in_a_later_round_either() -> None:
    """What is here may have rotted: only a whole result ends that."""
    stage, _ = in_round_three()
    stage.machine.pull_failed(B, "the step of w does not lead there", stage.now_s)
    stage.give("c", 2)
    stage.pass_(10.0)  # b is given up
    assert holds(stage.work()) == {"b": b"", "c": digest_of("c", 2)}
    stage.give("b", 3)
    stage.give("c", 3)
    assert holds(stage.work())["b"] == digest_of("b", 3)


def test_who_missed_a_round_says_which_one_it_has() -> None:
    stage, _ = in_round_three()
    stage.give("c", 2)
    stage.pass_(10.0)  # b is given up
    assert holds(stage.work()) == {"b": digest_of("b", 1), "c": digest_of("c", 2)}


@pytest.mark.parametrize(
    ("exchange", "held"),
    [(Exchange.RESULTS, digest_of("b", 1)), (Exchange.UPDATES, b"")],
)
def test_a_relay_says_what_it_holds_of_results_and_of_nothing_else(
    exchange: Exchange, held: bytes
) -> None:
    stage = Stage("bc", exchange=exchange)
    view = view_of(dict.fromkeys("bc", "ready"), "bc")
    stage.said += stage.machine.view(view, stage.now_s)
    for name in "bc":
        stage.give(name, 1)
    stage.machine.mixed(MixDone(1, (), (), 0.0), stage.now_s)
    done = Published(1, ref_of("a", 1), bytes(32))
    assert holds(list(stage.machine.published(done, stage.now_s)))["b"] == held


def test_a_step_is_served_before_the_result_that_it_leads_to() -> None:
    stage, _ = in_round_three()
    stage.give("b", 2)
    stage.give("c", 2)
    ref = ref_of("a", 3)
    more = replace(ref, digest=b"step".ljust(32))
    kept = stage.then(stage.work(published=Published(3, ref, bytes(32), (more,))))
    served = [e.snapshot for e in kept if isinstance(e, Serve)]
    assert served == [more, ref]

"""What a person is told of a run: in words that say what happened, and when."""

from peer.effects import Happened
from peer.pace import Pace
from tests.unit.machine.stage import Stage


def losses(stage: Stage) -> list[str]:
    return [e.reason for e in stage.said if isinstance(e, Happened) and e.event == "lost"]


def test_a_loss_says_since_when_the_neighbour_is_silent_not_since_when_it_was_asked() -> None:
    stage = Stage("b", pace=Pace(silence_s=4.0, grace_s=0.0, quorum=0.5))
    stage.found()
    stage.up()
    stage.work(took_s=2.9)  # round 1; b was last heard of before it
    stage.pass_(0.1)
    stage.pass_(4.0)
    assert losses(stage) == ["silent for 7.0 s"]


def test_a_neighbour_that_was_never_reached_is_lost_with_a_guess_why() -> None:
    stage = Stage("bc", pace=Pace(silence_s=4.0))
    stage.found()
    stage.up("b")
    stage.work()  # round 1
    stage.give("b", 1)
    stage.pass_(4.0)
    assert losses(stage) == ["not reached in 4.0 s: a firewall, or an address that misleads?"]

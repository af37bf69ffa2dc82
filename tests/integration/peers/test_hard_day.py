"""One long run and everything that may befall its peers, one thing after the other.

The run has no end of its own: the test goes on as soon as it has seen what it waits for.
"""

from collections.abc import Sequence
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM
from time import monotonic

from peer.influence import read_influence
from peer.ledger import read_events
from peer.summary import read_summary
from tests.integration.peers.village import LOOPBACK, Happening, Process, User, village

RUN = ("--run=day", "--lease=2")
SILENCE_S = 4.0
PACE = {"pace__silence_s": SILENCE_S, "pace__grace_s": 0.1, "pace__drain_s": 5}
SLACK_S = 8.0  # of a machine that is busy with other tests
BACK_S = 30.0  # until one that is there again takes part
CLEAN_STOP_S = 15.0
MAX_STALENESS = 3  # rounds, by default


def test_the_others_go_on_whatever_befalls_a_peer(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        place.deal("abc")
        user = place.user()
        coordinator = user.coordinator(
            *RUN, *LOOPBACK, founders=3, model="mlp", run__rounds=1_000_000, **PACE
        )
        a, b, c = (user.peer(name) for name in "abc")
        for peer in (a, b, c):
            peer.wait_for_round(3)
        frozen_and_thawed(c, others=(a, b))
        killed_in_mid_round(c, others=(a, b))
        without_coordinator_for_a_while(coordinator, user, peers=(a, b))
        again = started_again(user, c, others=(a, b))
        assert max(record["waited_s"] for record in a.rounds().values()) < SILENCE_S + SLACK_S
        asked_to_stop(again, user, others=(a, b))
        interrupted_at_a_terminal(b)
        a.wait_for_event("left", peer="b")
        robbed_of_its_trainer(a)


def frozen_and_thawed(peer: Process, *, others: Sequence[Process]) -> None:
    """For longer than the silence that the others allow; it comes back and catches up."""
    peer.signal(SIGSTOP)
    for other in others:
        other.wait_for_event("lost", peer="c")
        wait_for_rounds_without(other, "c", MAX_STALENESS + 1)
    peer.signal(SIGCONT)
    for other in others:
        other.wait_for_event("returned", peer="c")
        wait_for_fresh(other, "c")
    peer.wait_for("jump", lambda: any(r["skipped"] for r in peer.rounds().values()))


def killed_in_mid_round(peer: Process, *, others: Sequence[Process]) -> None:
    """The others go on, and say who was missing when; its trainer does not outlive it."""
    trainer = peer.trainer()
    before = [losses(other) for other in others]
    peer.signal(SIGKILL)
    assert peer.end() == -SIGKILL
    trainer.wait(SLACK_S)
    for other, told in zip(others, before, strict=True):
        other.wait_for("loss", lambda o=other, n=told: losses(o) > n)  # type: ignore[misc]
        wait_for_rounds_without(other, "c", MAX_STALENESS + 1)
        says_of_each_round_how_it_took_part(other, "c")
        assert "c" in latest(other, 1)[0]["missing"]


def without_coordinator_for_a_while(
    coordinator: Process, user: User, *, peers: Sequence[Process]
) -> None:
    """It dies and is started again: everybody finds it where it was, and goes on meanwhile."""
    coordinator.signal(SIGKILL)
    for peer in peers:
        peer.wait_for_event("coordinator-lost")
    resumed = user.type("coordinator", "start", *RUN)
    for peer in peers:
        peer.wait_for_event("coordinator-back")
    assert "resumed with 3 members" in resumed.err


def started_again(user: User, dead: Process, *, others: Sequence[Process]) -> Process:
    """Under its name, in the same folder: it goes on, and jumps to the others' round."""
    again = user.peer("c", *LOOPBACK, "--resume")
    again.wait_for("jump", lambda: any(r["skipped"] for r in again.rounds().values()))
    for other in others:
        wait_for_fresh(other, "c")
        wait_for_fresh(again, other.name[-1])
    assert max(again.rounds()) > max(dead.rounds())
    return again


def asked_to_stop(peer: Process, user: User, *, others: Sequence[Process]) -> None:
    """It ends in seconds with 0, its books closed and its trainer gone; the others hear of it."""
    trainer = peer.trainer()
    began_s = monotonic()
    peer.signal(SIGTERM)
    assert peer.end() == 0, peer.err
    assert monotonic() - began_s < CLEAN_STOP_S
    assert peer.errors() == []
    assert not trainer.is_running()
    for other in others:
        other.wait_for_event("left", peer="c")  # by its own word or the coordinator's
    (folder,) = user.cwd.glob("runs/*/c")
    events = read_events(folder / "events.jsonl")
    finished = events[-1]
    assert (finished.name, finished.fields["reason"]) == ("finished", "stopped by SIGTERM")
    rounds = [event.fields["round"] for event in events if event.name == "round"]
    assert len(rounds) == len(set(rounds)) > len(peer.rounds())  # those before it was killed too
    assert read_summary(folder / "summary.json").rounds_finished == len(rounds)
    assert list(read_influence(folder / "influence.npz").rounds) == rounds


def interrupted_at_a_terminal(peer: Process) -> None:
    """Ctrl-C goes to the trainer too, which leaves it to its node."""
    peer.signal_group(SIGINT)
    assert peer.end() == 0, peer.err
    assert peer.errors() == []
    assert "stopped by SIGINT" in peer.err


def robbed_of_its_trainer(peer: Process) -> None:
    """The last one trains on alone, until its trainer dies: it ends with one line that says so."""
    peer.wait_for("local round", lambda: latest(peer, 1)[0]["used"] == {})
    assert latest(peer, 1)[0]["missing"] == []  # who has left is not asked any more
    peer.trainer().kill()
    assert peer.end() == 1
    (error,) = peer.errors()
    assert error.startswith("Error: the trainer process ended: killed by SIGKILL")
    assert error.endswith("/runs/day/a/peer.log has more)")


def losses(peer: Process, name: str = "c") -> int:
    """How often it has told that it lost this neighbour."""
    return sum(line["peer"] == name for line in peer.happenings("lost"))


def latest(peer: Process, num: int) -> list[Happening]:
    """Records of its last rounds, in order."""
    return [record for _, record in sorted(peer.rounds().items())[-num:]]


def wait_for_rounds_without(peer: Process, name: str, num: int) -> None:
    """Wait until it has finished so many rounds in which `name` brought nothing fresh."""
    peer.wait_for(
        f"{num} rounds without {name}",
        lambda: sum(name not in record["used"] for record in latest(peer, num)) == num,
    )


def wait_for_fresh(peer: Process, name: str) -> None:
    peer.wait_for(
        f"fresh result of {name}", lambda: name in latest(peer, 1)[0]["used"], within_s=BACK_S
    )


def says_of_each_round_how_it_took_part(peer: Process, name: str) -> None:
    for number, record in peer.rounds().items():
        said = [name in record[key] for key in ("used", "stale", "missing")]
        assert sum(said) == (number > 1), record  # nobody has anything to give before round 1
        assert record["stale"].get(name, 0) <= MAX_STALENESS

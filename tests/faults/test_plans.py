"""A table of fault plans times seeds: every live peer finishes, waits are bounded, bytes repeat."""

from pathlib import Path

import pytest

from peer.options.fields import Value
from protocol.ids import PeerId
from tests.faults.toyland import NAMES, Story, tell

ROUNDS = 8
SEEDS = 50  # each at one of the paces, in turn
BOUND_S = 20.0
FINISHED = (0, "finished")
CONVERSATION = ("protocol.wire.membership", "coordinator.gate")


def table(kind: str, *lines: str) -> str:
    return "\n".join(["[[fault]]", f'kind = "{kind}"', *lines, ""])


HALVES = 'groups = [["a", "b", "c"], ["d", "e", "f"]]'
WEATHER = (
    table("loss", "at_s = 1", "for_s = 12", "rate = 0.2")
    + table("corrupt", "at_s = 1", "for_s = 12", "rate = 0.05")
    + table("delay", "at_s = 2", "for_s = 9", "seconds = 0.4", 'peer = "b"')
    + table("jitter", "at_s = 0", "seconds = 0.2")
    + table("bandwidth", "at_s = 3", "for_s = 5", "mbit = 0.01", 'links = [["a", "c"]]')
)
PLANS = {
    "nothing": "",
    "partition": table("partition", "at_round = 3", "until_round = 6", HALVES),
    "partition-to-the-end": table("partition", "at_round = 3", HALVES),
    "bridge": table("partition", "at_round = 2", 'groups = [["a", "b"], ["b", "c", "d"]]')
    + table("heal", "at_round = 6"),
    "dropout": table("random", "rate = 0.3"),
    "dropout-that-lasts": table("random", "rate = 0.2", "rejoin = 0.4", "at_round = 2"),
    "all-absent": table("random", "rate = 1.0", "at_round = 4", "for_rounds = 2"),
    "lives": table("join", "at_round = 4", 'peers = ["b", "c"]')
    + table("leave", "at_round = 5", 'peers = ["a", "d"]')
    + table("leave", "at_round = 7", 'peer = "b"'),
    "lost-exchanges": table("loss", "at_round = 1", "rate = 0.3"),
    "everything-in-rounds": table("partition", "at_round = 2", "for_rounds = 4", HALVES)
    + table("random", "rate = 0.3")
    + table("join", "at_round = 3", 'peer = "c"')
    + table("leave", "at_round = 6", 'peer = "e"')
    + table("loss", "at_round = 3", "rate = 0.2"),
    "partition-in-seconds": table("partition", "at_s = 3", HALVES) + table("heal", "at_s = 20"),
    "kill": table("kill", "at_s = 3.3", 'peers = ["b", "e"]'),
    "kill-in-a-round": table("kill", "at_round = 3", "until_round = 5", 'peer = "b"'),
    "kill-and-restart": table("kill", "at_s = 2.7", 'peer = "b"')
    + table("restart", "at_s = 9.1", 'peer = "b"')
    + table("restart", "at_s = 4.2", 'peer = "c"'),
    "all-killed": table("kill", "at_s = 4", "for_s = 2", 'peers = ["a", "b", "c", "d", "e", "f"]'),
    "freeze": table("freeze", "at_s = 3", "for_s = 17", 'peer = "b"')
    + table("freeze", "at_round = 3", "for_rounds = 1", 'peer = "c"'),
    "slow": table("slow", "at_round = 2", "factor = 8", 'peer = "d"'),
    "coordinator": table("coordinator-down", "at_s = 2") + table("coordinator-up", "at_s = 9"),
    "kill-while-the-coordinator-is-down": table("coordinator-down", "at_s = 2", "for_s = 12")
    + table("kill", "at_s = 3", "for_s = 2", 'peer = "b"'),
    "kill-and-no-coordinator-again": table("coordinator-down", "at_s = 2")
    + table("kill", "at_s = 3", "for_s = 2", 'peers = ["b", "c"]'),
    "weather": WEATHER,
    "comers-and-goers": table("join", "at_s = 4", 'peer = "b"')
    + table("leave", "at_s = 6", 'peers = ["c", "d"]'),
    "a-hard-day": WEATHER
    + table("partition", "at_s = 5", "for_s = 10", HALVES)
    + table("kill", "at_s = 3", "for_s = 6", 'peer = "a"')
    + table("freeze", "at_s = 4", "for_s = 12", 'peer = "d"')
    + table("coordinator-down", "at_s = 2", "for_s = 12")
    + table("leave", "at_s = 14", 'peer = "e"')
    + table("join", "at_s = 7", 'peer = "c"'),
}
GONE = {  # who does not end with "finished", and how
    "lives": {
        name: f"left before round {first}, as the faults say"
        for name, first in (("a", 5), ("d", 5), ("b", 7))
    },
    "everything-in-rounds": {"e": "left before round 6, as the faults say"},
    "kill": dict.fromkeys("be", "killed"),
    "comers-and-goers": dict.fromkeys("cd", "left, as the faults say"),
    "a-hard-day": {"e": "left, as the faults say"},
}
SAMPLE = ("everything-in-rounds", "all-killed", "a-hard-day")  # of every `make test`
PACES: dict[str, dict[str, Value]] = {
    "all": {"pace__quorum": 1.0, "pace__bound_s": BOUND_S},
    "quorum": {"pace__bound_s": BOUND_S},
    "async": {"pace__mode": "async"},
}


def check(plan: str, pace: str, story: Story) -> None:
    """Every live peer finishes, no wait is unbounded, no round is left untold, in one run."""
    assert len({start.fields["run"] for name in NAMES for start in story.starts(name)}) == 1
    for name in NAMES:
        code, reason = story.ends[name]
        gone = GONE.get(plan, {}).get(name)
        assert reason == (gone or "finished"), name
        assert code == (-9 if gone == "killed" else 0)
        rounds = story.rounds(name)
        before = 0
        for number, event in sorted(rounds.items()):
            fields = event.fields
            waited_s = float(str(fields["waited_s"]))
            sat_out = number - before - 1
            # on top of the bound: what a frozen peer could not see pass
            assert waited_s <= BOUND_S * (1 + sat_out) + 17.5, (name, number)
            assert pace != "async" or waited_s == 0.0 or before == 0
            used, stale = fields["used"], fields["stale"]
            assert isinstance(used, dict)
            assert isinstance(stale, dict)
            assert not used.keys() & stale.keys()
            before = number
        if gone is None and plan not in ("dropout", "dropout-that-lasts", "everything-in-rounds"):
            assert max(rounds) == ROUNDS
    assert story.virtual_s < 60.0 + ROUNDS * (BOUND_S + 5.0) * 2


@pytest.mark.parametrize("plan", SAMPLE)
def test_a_run_under_faults_finishes_and_repeats(
    tmp_path: Path, plan: str, caplog: pytest.LogCaptureFixture
) -> None:
    stories = []
    for part in ("first", "second"):
        story = tell(tmp_path / part, PLANS[plan], 1, rounds=ROUNDS, **PACES["all"])
        check(plan, "all", story)
        stories.append(story)
    assert stories[0].transcript == stories[1].transcript
    # Nobody hears what a coordinator says to another process, and nobody speaks out of place.
    assert not [told.getMessage() for told in caplog.records if told.name in CONVERSATION]


def test_a_run_of_which_everybody_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    story = tell(tmp_path, PLANS["all-killed"], 1, rounds=ROUNDS, **PACES["all"])
    for name in NAMES:
        _, second = story.starts(name)
        done = [n for n, event in story.rounds(name).items() if event.at_s < second.at_s]
        assert second.fields["resumed_after"] == max(done)
        assert list(story.rounds(name)) == list(range(1, ROUNDS + 1))  # each once, and in order


@pytest.mark.parametrize(
    "plan", ["kill-while-the-coordinator-is-down", "kill-and-no-coordinator-again"]
)
def test_who_comes_back_while_no_coordinator_is_there_goes_on_by_the_view_that_it_kept(
    tmp_path: Path, plan: str
) -> None:
    story = tell(tmp_path, PLANS[plan], 1, rounds=ROUNDS, **PACES["all"])
    assert story.ends == dict.fromkeys(NAMES, FINISHED)
    events = story.events[PeerId("b")]
    (lost,) = [event.fields["reason"] for event in events if event.name == "coordinator-lost"]
    assert "has not answered in 5 s" in str(lost)
    assert "going on by the view of epoch" in str(lost)
    assert story.starts("b")[1].fields["resumed_after"] == 2
    assert any(event.name == "coordinator-back" for event in events) == ("while" in plan)
    for name in NAMES:  # with quorum 1 nobody was given up: all of it as if nothing had happened
        rounds = story.rounds(name)
        assert list(rounds) == list(range(1, ROUNDS + 1))
        assert not any(event.fields["missing"] for event in rounds.values())


DEAF_TO_B = 'links = [["b", "a"], ["b", "c"], ["b", "d"], ["b", "e"], ["b", "f"]]'
AHEAD = table("loss", "at_round = 2", "rate = 1.0", DEAF_TO_B, "one_way = true") + table(
    "slow", "at_round = 1", "factor = 5", 'peer = "b"'
)


@pytest.mark.parametrize("killed", [(), ("a",), ("a", "b")])
def test_who_lags_gets_the_rounds_that_it_asks_for_even_of_one_that_was_killed(
    tmp_path: Path, killed: tuple[str, ...]
) -> None:
    # nobody hears anything of b, so they never wait for it; b needs every round of theirs
    plan = AHEAD + "".join(table("kill", "at_s = 7", "for_s = 2", f'peer = "{n}"') for n in killed)
    story = tell(tmp_path, plan, 1, rounds=ROUNDS, **PACES["all"])
    assert story.ends == dict.fromkeys(NAMES, FINISHED)
    a, b = story.rounds("a"), story.rounds("b")
    assert list(a) == list(b) == list(range(1, ROUNDS + 1))
    asked = {n: event.fields["used"] for n, event in b.items() if n > 1}
    assert {n: used["a"] for n, used in asked.items() if isinstance(used, dict)} == {
        n: n - 1 for n in range(2, ROUNDS + 1)
    }
    if killed:
        back = story.starts("a")[1]
        done = [n for n, event in a.items() if event.at_s < back.at_s]
        lags = [n for n, event in b.items() if event.at_s > back.at_s and max(done) - (n - 1) >= 3]
        assert lags, "b asked for what was three rounds old when a came back"
    served = tmp_path / "a" / "state" / "snapshots"
    assert len(list(served.iterdir())) <= ROUNDS


def test_a_run_ends_without_those_who_are_frozen_for_good_or_come_too_late(tmp_path: Path) -> None:
    plan = table("freeze", "at_round = 3", "until_round = 99", 'peer = "b"')
    plan += table("kill", "at_round = 4", 'peer = "d"') + table("join", "at_s = 999", 'peer = "c"')
    story = tell(tmp_path, plan, 1, rounds=ROUNDS, **PACES["all"])
    assert story.ends == {"d": (-9, "killed")} | dict.fromkeys("aef", FINISHED)
    assert list(story.rounds("b")) == [1, 2]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plan", PLANS)
def test_fifty_seeds_of_every_plan_finish_and_repeat(tmp_path: Path, plan: str) -> None:
    paces, told = list(PACES), set()
    for seed in range(SEEDS):
        pace = paces[seed % len(paces)]
        story = tell(tmp_path / str(seed), PLANS[plan], seed, rounds=ROUNDS, **PACES[pace])
        check(plan, pace, story)
        told.add(tuple(sorted(story.transcript.items())))
        if seed < len(paces):
            again = tell(tmp_path / "again" / pace, PLANS[plan], seed, rounds=ROUNDS, **PACES[pace])
            assert again.transcript == story.transcript
    assert len(told) == SEEDS  # every seed is another run


def test_what_is_not_finite_is_refused_wherever_it_arrives(tmp_path: Path) -> None:
    story = tell(tmp_path, "", 0, rounds=ROUNDS, **PACES["all"])
    assert story.refused > 0
    refusals = [event.fields["refused"] for event in story.rounds("a").values()]
    assert [told for told in refusals if told] == [{"f": "w is not finite"}] * 2

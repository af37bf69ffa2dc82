"""One common model between whole peers: the same start for all, lost and found again."""

from itertools import pairwise
from pathlib import Path

import pytest

from peer.options.fields import Value
from tests.unit.common.hamlet import Hamlet

RESYNC = ("resync", "resync-failed")


@pytest.mark.parametrize("method", ["fedavg", "craft", "scaffold"])
def test_all_peers_begin_every_round_from_one_start(tmp_path: Path, method: str) -> None:
    hamlet = Hamlet(tmp_path, method, rounds=3)
    hamlet.play()
    assert hamlet.starts() == {1: "abc", 2: "abc", 3: "abc"}


def test_who_missed_a_contribution_adopts_the_common_start_and_says_so(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "fedavgm", rounds=4)
    hamlet.world.blocked["a", "b"] = 3  # every pull of one round
    hamlet.play()
    assert hamlet.starts() == {1: "abc", 2: "a bc", 3: "abc", 4: "abc"}
    assert [hamlet.events(name, *RESYNC) for name in "abc"] == [[("resync", "b")], [], []]


def test_where_nobody_agrees_all_adopt_the_start_of_the_lowest_name(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "fedavgm", rounds=4)
    hamlet.world.blocked |= {(me, other): 3 for me in "abc" for other in "abc" if me != other}
    hamlet.play()
    assert hamlet.starts() == {1: "abc", 2: "a b c", 3: "abc", 4: "abc"}
    resyncs = [hamlet.events(name, *RESYNC) for name in "abc"]
    assert resyncs == [[], [("resync", "a")], [("resync", "a")]]


def test_a_late_joiner_is_given_the_state(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "craft", rounds=8)
    hamlet.at(2.5, lambda: hamlet.settle("d"))
    hamlet.play()
    starts = list(hamlet.starts().values())
    assert starts == ["abc"] * starts.index("abcd") + ["abcd"] * starts.count("abcd")
    assert hamlet.events("d", *RESYNC) == [("resync", "a")]


def test_peers_that_take_turns_hand_the_common_model_on(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "fedavgm", rounds=6, **{"run.participation": 0.34})  # one of three
    hamlet.play()
    turns = [name for starts in hamlet.starts().values() for name in starts]
    assert len(turns) == 6
    for name in set(turns):
        # In round 2 nobody needs to adopt: all still hold the initial model, as round 1 did.
        handed = [(old, new) for old, new in pairwise(turns[1:]) if old != new]
        expected = [("resync", old) for old, new in handed if new == name]
        assert hamlet.events(name, *RESYNC) == expected


@pytest.mark.parametrize("method", ["fedavgm", "scaffold"])  # the second with extras
def test_with_a_relay_all_begin_from_its_model(tmp_path: Path, method: str) -> None:
    hamlet = Hamlet(tmp_path, method, rounds=3)
    hamlet.settle_relay()
    hamlet.play()
    assert hamlet.starts() == {1: "abc", 2: "abc", 3: "abc"}
    assert hamlet.used("a") == [set(), {"relay"}, {"relay"}]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("kinfolk", {}),
        ("kinfolk", {"model": "cnn", "model.norm": "batch", "mix.buffers": "local"}),
        ("fedrep", {"aggregator": "craft"}),  # peers keep their classifiers
    ],
)
def test_where_peers_start_from_their_own_mix_a_relay_is_one_more_neighbour(
    tmp_path: Path, method: str, options: dict[str, Value]
) -> None:
    hamlet = Hamlet(tmp_path, method, rounds=3, **options)
    hamlet.settle_relay()
    hamlet.play()
    assert hamlet.used("relay") == [{"a", "b", "c"}] * 3
    assert hamlet.stale("a") == [set(), set(), {"relay"}]  # its model of round 1, in round 3
    assert hamlet.notes("relay")[-1]["updates_used"] == 3.0


def test_a_relay_that_comes_late_adopts_what_the_peers_hold(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "fedavgm", rounds=8)
    hamlet.at(2.5, hamlet.settle_relay)
    hamlet.play()
    assert set(hamlet.starts().values()) == {"abc"}
    assert hamlet.events("relay", *RESYNC) == [("resync", "a")]
    assert hamlet.used("a")[-1] == {"relay"}


def test_a_relay_that_says_goodbye_costs_one_local_round(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "fedavgm", rounds=6)
    hamlet.settle_relay()
    hamlet.at(3.0, lambda: hamlet.leave("relay"))
    hamlet.play()
    assert hamlet.starts() == {1: "abc", 2: "abc", 3: "abc", 4: "a b c", 5: "abc", 6: "abc"}
    assert [len(used) for used in hamlet.used("a")] == [0, 1, 1, 0, 2, 2]
    resyncs = [hamlet.events(name, *RESYNC) for name in "abc"]
    assert resyncs == [[], [("resync", "a")], [("resync", "a")]]


def test_a_relay_that_vanishes_costs_local_rounds_until_its_lease_is_over(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "fedavgm", rounds=14)
    hamlet.settle_relay()
    hamlet.at(2.5, lambda: hamlet.vanish("relay"))
    hamlet.play()
    starts = list(hamlet.starts().values())
    local = starts.count("a b c")
    assert starts == ["abc"] * 3 + ["a b c"] * local + ["abc"] * (11 - local)
    assert 1 <= local <= 10
    assert hamlet.used("a")[-1] == {"b", "c"}
    assert hamlet.events("b", *RESYNC) == [("resync", "a")]


def test_afl_notes_the_rounds_that_its_definition_does_not_cover(tmp_path: Path) -> None:
    hamlet = Hamlet(tmp_path, "afl", rounds=5)
    hamlet.at(2.5, lambda: hamlet.vanish("c"))
    hamlet.play()
    for name in "ab":
        present = [len(used) for used in hamlet.used(name)[1:]]
        noted = [notes["outside_definition"] for notes in hamlet.notes(name)[1:]]
        assert present[0] == 2
        assert present[-1] == 1
        assert noted == [float(others < 2) for others in present]

"""Faults in rounds: a pure function of tables, seed, names and round."""

import tomllib
from itertools import pairwise

import pytest

from peer.faults.plan import FaultPlan, agreed, draw
from peer.faults.reading import read_faults

NAMES = [f"p{number}" for number in range(200)]


def plan(text: str, *, seed: int = 0) -> FaultPlan:
    return FaultPlan(read_faults(tomllib.loads(text).get("fault", [])), seed=seed)


def cuts(made: FaultPlan, asker: str, answerer: str, rounds: range) -> list[int]:
    return [r for r in rounds if made.cut(asker, answerer, round_no=r, asked=r - 1)]


PARTITION = '[[fault]]\nkind = "partition"\nat_round = 3\ngroups = [["a"], ["b", "c"]]\n'


def test_without_faults_nothing_fails() -> None:
    made = plan("")
    assert not made
    assert cuts(made, "a", "b", range(1, 50)) == []
    assert made.absence("a", 7) == ""
    assert (made.first_round("a"), made.last_round("a", 9)) == (1, 9)


def test_faults_in_seconds_are_no_part_of_it() -> None:
    assert not plan('[[fault]]\nkind = "partition"\nat_s = 3\ngroups = [["a"], ["b"]]')


def test_a_partition_cuts_those_rounds_in_which_the_asker_plays() -> None:
    made = plan(PARTITION + "until_round = 6")
    assert cuts(made, "a", "b", range(1, 9)) == [3, 4, 5]
    assert cuts(made, "b", "a", range(1, 9)) == [3, 4, 5]
    assert cuts(made, "b", "c", range(1, 9)) == []
    assert made.cut("a", "b", round_no=4, asked=3) == "partition in round 4"


def test_heal_ends_every_partition_that_is_in_force_and_none_after_it() -> None:
    later = '[[fault]]\nkind = "partition"\nat_round = 8\ngroups = [["a"], ["b"]]\n'
    made = plan(PARTITION + '[[fault]]\nkind = "heal"\nat_round = 5\n' + later)
    assert cuts(made, "a", "b", range(1, 11)) == [3, 4, 8, 9, 10]
    assert cuts(made, "a", "c", range(1, 11)) == [3, 4, 8, 9, 10]  # c is in no group of the second


def test_who_is_absent_has_no_result_of_that_round() -> None:
    made = plan(
        '[[fault]]\nkind = "random"\nrate = 1.0\npeers = ["b"]\nat_round = 4\nfor_rounds = 2'
    )
    assert [r for r in range(1, 9) if made.absence("b", r)] == [4, 5]
    assert cuts(made, "a", "b", range(1, 9)) == [5, 6]  # they ask for rounds 4 and 5
    assert made.absence("b", 4) == "absent from round 4"
    assert made.absence("a", 4) == ""


def test_absence_comes_as_often_as_its_rate_says_and_peers_are_drawn_apart() -> None:
    made = plan('[[fault]]\nkind = "random"\nrate = 0.3')
    share = [sum(bool(made.absence(name, r)) for name in NAMES) / 200 for r in range(1, 21)]
    # 4000 draws: the mean's standard deviation is 0.0072
    assert abs(sum(share) / 20 - 0.3) < 0.03
    assert len({tuple(bool(made.absence(name, r)) for r in range(1, 21)) for name in NAMES}) > 150


def test_with_a_rejoin_rate_absences_last() -> None:
    made = plan('[[fault]]\nkind = "random"\nrate = 0.1\nrejoin = 0.25')
    away = [[bool(made.absence(name, r)) for r in range(1, 101)] for name in NAMES]
    after = [b for row in away for a, b in pairwise(row) if a]
    before = [b for row in away for a, b in pairwise(row) if not a]
    assert abs(sum(after) / len(after) - 0.75) < 0.03  # stays away
    assert abs(sum(before) / len(before) - 0.1) < 0.02  # goes
    # the two-state chain rests at rate / (rate + rejoin)
    late = [row[r] for row in away for r in range(50, 100)]
    assert abs(sum(late) / len(late) - 0.1 / 0.35) < 0.04


def test_the_order_of_questions_changes_no_answer() -> None:
    text = '[[fault]]\nkind = "random"\nrate = 0.3\nrejoin = 0.5\nat_round = 2'
    forth, back = plan(text, seed=5), plan(text, seed=5)
    ahead = {(n, r): forth.absence(n, r) for n in NAMES[:5] for r in range(1, 30)}
    assert {(n, r): back.absence(n, r) for n, r in reversed(ahead)} == dict(ahead)
    other = plan(text, seed=6)
    assert {key: other.absence(*key) for key in ahead} != ahead


def test_a_relay_is_absent_only_if_it_is_named() -> None:
    everybody = plan('[[fault]]\nkind = "random"\nrate = 1.0')
    assert everybody.absence("r", 3)
    assert not everybody.absence("r", 3, is_relay=True)
    named = plan('[[fault]]\nkind = "random"\nrate = 1.0\npeers = ["r"]')
    assert named.absence("r", 3, is_relay=True)


def test_loss_in_rounds_is_drawn_for_each_asker_answerer_and_round() -> None:
    made = plan('[[fault]]\nkind = "loss"\nrate = 0.25\nat_round = 1')
    lost = [cuts(made, "a", name, range(1, 41)) for name in NAMES]
    assert abs(sum(map(len, lost)) / 8000 - 0.25) < 0.02
    assert cuts(made, "a", "b", range(1, 99)) != cuts(made, "b", "a", range(1, 99))


def test_joining_and_leaving_bound_a_life() -> None:
    made = plan(
        '[[fault]]\nkind = "join"\nat_round = 3\npeer = "b"\n'
        '[[fault]]\nkind = "leave"\nat_round = 6\npeer = "b"\n'
    )
    assert [r for r in range(1, 9) if not made.absence("b", r)] == [3, 4, 5]
    assert (made.first_round("b"), made.last_round("b", 8)) == (3, 5)
    # nothing of before it joined, and nothing once it has left, its last result included
    assert [r for r in range(1, 9) if r not in cuts(made, "a", "b", range(1, 9))] == [4, 5]
    assert made.is_over("a", "b", 6, 8)
    assert not made.is_over("a", "b", 5, 8)


@pytest.mark.parametrize("words", [("a", 1), ("a", 2), ("b", 1)])
def test_draws_are_fractions_that_hang_on_every_word(words: tuple[str, int]) -> None:
    assert 0.0 <= draw(0, *words) < 1.0
    assert draw(0, *words) == draw(0, *words)
    assert draw(0, *words) != draw(1, *words)
    assert draw(0, *words) != draw(0, *words, "more")


def test_as_many_results_are_kept_as_a_cut_lets_others_run_ahead() -> None:
    assert plan("").results_kept("a", "bc", 40) == 2
    made = plan(PARTITION + "until_round = 6")
    # b gets a's round 1 in round 2; a is to hear of b in round 6: by then 1 to 5 may be out
    assert made.results_kept("a", "bc", 40) == 5
    assert made.results_kept("b", "c", 40) == 2
    assert plan(PARTITION).results_kept("a", "b", 40) == 16


# -- what all nodes must have alike ---------------------------------------------------------------

BY_NUMBER = '[[fault]]\nkind = "random"\nrate = 0.3\n'
IN_SECONDS = '[[fault]]\nkind = "delay"\nat_s = 3\nseconds = 0.5\n'


def alike(text: str) -> str:
    return agreed(read_faults(tomllib.loads(text).get("fault", [])))


def test_nodes_with_the_same_plan_agree_however_their_files_are_written() -> None:
    until = PARTITION + "until_round = 6\n"
    turned = until.replace('[["a"], ["b", "c"]]', '[["c", "b"], ["a"]]')
    healed = PARTITION + '[[fault]]\nkind = "heal"\nat_round = 6\n'
    assert alike(until) == alike(turned) == alike(healed)
    assert alike(until).startswith("1 in rounds (")
    join = '[[fault]]\nkind = "join"\nat_round = 3\n'
    apart = f'{join}peer = "b"\n{join}peer = "a"\n'
    assert alike(f'{join}peers = ["a", "b"]\n') == alike(apart)
    assert alike(apart).startswith("2 in rounds (")


def test_nodes_need_not_agree_about_what_befalls_messages_and_processes() -> None:
    kill = '[[fault]]\nkind = "kill"\nat_round = 3\npeer = "a"\n'
    assert alike("") == alike(IN_SECONDS) == alike(kill) == "none"
    assert alike(PARTITION) == alike(PARTITION + IN_SECONDS + kill)


@pytest.mark.parametrize(
    "other",
    [
        "",
        BY_NUMBER,
        PARTITION.replace("3", "4"),
        PARTITION + "until_round = 6",
        PARTITION.replace('"b", "c"', '"b"'),
        PARTITION + BY_NUMBER,
    ],
)
def test_nodes_with_another_plan_do_not_agree(other: str) -> None:
    assert alike(other) != alike(PARTITION)


def test_what_is_drawn_depends_on_the_place_of_its_table() -> None:
    assert alike(BY_NUMBER) != alike(IN_SECONDS + BY_NUMBER)
    first, second = plan(BY_NUMBER), plan(IN_SECONDS + BY_NUMBER)
    drawn = [[bool(made.absence("a", r)) for r in range(1, 40)] for made in (first, second)]
    assert drawn[0] != drawn[1]


def test_links_one_by_one_tell_plans_apart() -> None:
    loss = '[[fault]]\nkind = "loss"\nat_round = 1\nrate = 0.5\n'
    texts = [
        "",
        'links = [["a", "b"]]',
        'links = [["b", "a"]]',
        'links = [["a", "b"]]\none_way = true',
    ]
    assert len({alike(loss + text) for text in texts}) == 4

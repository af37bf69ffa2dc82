"""`[[fault]]` tables: what they mean, and that every mistake is told with table, key and value."""

import math
import tomllib

import pytest

from peer.faults.reading import read_faults
from peer.faults.table import RULES, Fault, Kind, Link, Span
from protocol.errors import ConfigError


def faults(text: str, names: str = "abcdef") -> tuple[Fault, ...]:
    return read_faults(tomllib.loads(text).get("fault", []), names=names)


def one(body: str) -> Fault:
    (fault,) = faults(f"[[fault]]\n{body}")
    return fault


def test_a_partition_in_rounds_lasts_from_its_first_round_to_before_its_last() -> None:
    fault = one(
        'kind = "partition"\nat_round = 10\nuntil_round = 20\ngroups = [["a", "b"], ["c", "d"]]'
    )
    assert fault.kind is Kind.PARTITION
    assert fault.span == Span(at_round=10, until_round=20)
    assert [r for r in range(30) if fault.span.has_round(r)] == list(range(10, 20))
    assert not fault.span.has_instant(15.0)
    assert not fault.carries("a", "b")
    assert fault.carries("a", "c")
    assert fault.carries("a", "e")  # e is in no group, as f is
    assert not fault.carries("e", "f")


def test_who_stands_in_two_groups_is_a_bridge() -> None:
    fault = one('kind = "partition"\nat_round = 1\ngroups = [["a", "b"], ["b", "c"]]')
    assert not fault.carries("a", "b")
    assert not fault.carries("c", "b")
    assert fault.carries("a", "c")
    assert fault.span.is_open


def test_a_length_is_as_good_as_an_end() -> None:
    rounds = one('kind = "freeze"\nat_round = 3\nfor_rounds = 2\npeer = "a"')
    assert rounds.span == Span(at_round=3, until_round=5)
    seconds = one('kind = "freeze"\nat_s = 3\nfor_s = 2.5\npeers = ["a"]')
    assert seconds.span == Span(at_s=3.0, until_s=5.5)
    assert [seconds.span.has_instant(s) for s in (2.9, 3.0, 5.4, 5.5)] == [False, True, True, False]
    assert rounds.peers == seconds.peers == ("a",)


def test_links_go_both_ways_unless_one_is_meant() -> None:
    both = one('kind = "loss"\nat_s = 0\nrate = 0.5\nlinks = [["a", "b"]]')
    assert both.links == (Link("a", "b"),)  # type: ignore[arg-type]
    assert both.carries("a", "b")
    assert both.carries("b", "a")
    assert not both.carries("a", "c")
    single = one('kind = "loss"\nat_s = 0\nrate = 0.5\nlinks = [["a", "b"]]\none_way = true')
    assert single.carries("a", "b")
    assert not single.carries("b", "a")


def test_peers_mean_all_that_they_say_and_hear_and_nobody_means_everybody() -> None:
    of_a = one('kind = "delay"\nat_s = 0\nseconds = 0.5\npeer = "a"')
    assert of_a.carries("a", "b")
    assert of_a.carries("b", "a")
    assert not of_a.carries("b", "c")
    of_all = one('kind = "bandwidth"\nat_s = 0\nmbit = 8')
    assert of_all.carries("b", "c")
    assert of_all.mbit == 8.0
    assert of_a.mbit == math.inf


def test_absence_at_random_begins_with_round_1_unless_told_otherwise() -> None:
    fault = one('kind = "random"\nrate = 0.3')
    assert fault.span == Span(at_round=1)
    assert (fault.rate, fault.rejoin) == (0.3, None)
    assert fault.befalls("a")
    again = one('kind = "random"\nrate = 0.3\nrejoin = 0.5\npeers = ["a"]\nat_round = 4')
    assert (again.rejoin, again.befalls("b"), again.span.at_round) == (0.5, False, 4)


def test_every_kind_can_be_said_with_what_it_needs() -> None:
    values = {
        "groups": 'groups = [["a"], ["b"]]',
        "peers": 'peers = ["a"]',
        "factor": "factor = 2",
        "seconds": "seconds = 0.1",
        "rate": "rate = 0.1",
        "mbit": "mbit = 1",
    }
    for kind, rule in RULES.items():
        lines = [f'kind = "{kind}"', f"{rule.units[0]} = 2", *(values[key] for key in rule.needs)]
        assert one("\n".join(lines)).kind is kind
        assert rule.says
    assert set(RULES) == set(Kind)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fault = 3", "fault must be at most 1000 tables"),
        ("fault = [3]", r"\[\[fault\]\] 1 must be a table, got 3"),
        ("[[fault]]\nat_s = 1", "1 has no kind.*there are: partition, heal"),
        ('[[fault]]\nkind = "partiton"', "1 has kind 'partiton'.*did you mean partition"),
        ('[[fault]]\nkind = "heal"', r"1 \(heal\) has no beginning.*one of at_round or at_s"),
        ('[[fault]]\nkind = "heal"\nat_s = 1\nat_round = 1', "has at_round and at_s.*one of"),
        (
            '[[fault]]\nkind = "heal"\nat_round = 0',
            "at_round = 0: it must be a whole number from 1",
        ),
        ('[[fault]]\nkind = "heal"\nat_round = true', "at_round = True: it must be a whole"),
        ('[[fault]]\nkind = "heal"\nat_s = -1', "at_s = -1: it must be seconds"),
        ('[[fault]]\nkind = "heal"\nat_s = nan', "at_s = nan: it must be seconds"),
        ('[[fault]]\nkind = "heal"\nat_s = 1\nfor_s = 1', "has no key 'for_s'"),
        ('[[fault]]\nkind = "partition"\nat_s = 1', r"\(partition\) needs groups"),
        ('[[fault]]\nkind = "partition"\nat_s = 1\ngroups = []', "groups = .*list of lists"),
        ('[[fault]]\nkind = "partition"\nat_s = 1\ngroups = [[]]', "a group = .*at least one"),
        ('[[fault]]\nkind = "partition"\nat_s = 1\ngroups = [["a/"]]', "names a peer that cannot"),
        (
            '[[fault]]\nkind = "partition"\nat_s = 1\ngroups = [["g"]]',
            "names 'g', which is no peer",
        ),
        ('[[fault]]\nkind = "kill"\nat_s = 1', r"\(kill\) needs peers"),
        ('[[fault]]\nkind = "kill"\nat_s = 1\npeers = "a"', "peers = 'a': it must be a list"),
        ('[[fault]]\nkind = "kill"\nat_s = 1\npeer = 1', "peer = 1: it must be a name"),
        ('[[fault]]\nkind = "kill"\nat_s = 1\npeer = "a"\npeers = ["b"]', "has peer and peers"),
        ('[[fault]]\nkind = "kill"\nat_s = 1\nuntil_s = 1\npeer = "a"', "must end after at_s = 1"),
        (
            '[[fault]]\nkind = "kill"\nat_s = 1\nuntil_round = 3\npeer = "a"',
            "begins with at_s and ends with until_round",
        ),
        (
            '[[fault]]\nkind = "kill"\nat_s = 1\nuntil_s = 3\nfor_s = 3\npeer = "a"',
            "has until_s and for_s: one end",
        ),
        ('[[fault]]\nkind = "slow"\nat_s = 1\npeer = "a"\nfactor = 1', "factor = 1: .* above 1"),
        ('[[fault]]\nkind = "loss"\nat_s = 1\nrate = 1.5', r"rate = 1.5: .*\(0, 1\]"),
        ('[[fault]]\nkind = "loss"\nat_s = 1\nrate = 0.1\nlinks = [["a"]]', r"link \['a'\]: .*two"),
        ('[[fault]]\nkind = "loss"\nat_s = 1\nrate = 0.1\none_way = true', "one_way, which needs"),
        (
            '[[fault]]\nkind = "loss"\nat_s = 1\nrate = 0.1\npeer = "a"\nlinks = [["a", "b"]]',
            "has peers and links",
        ),
        ('[[fault]]\nkind = "random"\nat_s = 1\nrate = 0.1', r"\(random\) has no key 'at_s'"),
        (
            '[[fault]]\nkind = "leave"\nat_round = 3\npeer = "a"\n'
            '[[fault]]\nkind = "leave"\nat_round = 5\npeer = "a"',
            r"2 \(leave\) names a, which \[\[fault\]\] 1 has already",
        ),
        (
            '[[fault]]\nkind = "leave"\nat_round = 3\npeer = "a"\n'
            '[[fault]]\nkind = "join"\nat_round = 5\npeer = "a"',
            r"1 \(leave\) lets a leave before it joins by \[\[fault\]\] 2",
        ),
    ],
)
def test_a_mistake_is_told_with_its_table_key_and_value(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        faults(text)
    assert "\n" not in str(caught.value)

"""A run that would wait for ever is refused, and one that only looks like it is not."""

import tomllib

import pytest

from peer.faults.feasible import check_feasible, check_rounds
from peer.faults.reading import read_faults
from peer.faults.table import Fault, Kind
from protocol.errors import ConfigError

PEERS = ("a", "b", "c")


def check(text: str, *, founders: int | None = None, rounds: int = 9) -> None:
    faults = read_faults(tomllib.loads(text).get("fault", []), names=(*PEERS, "hub"))
    check_feasible(faults, PEERS, rounds=rounds, founders=founders)


def table(kind: str, *lines: str) -> str:
    return "\n".join(["[[fault]]", f'kind = "{kind}"', *lines, ""])


ALL = 'peers = ["a", "b", "c"]'
B, C = 'peer = "b"', 'peer = "c"'
LATE = table("join", "at_s = 4", C)


@pytest.mark.parametrize(
    ("text", "founders", "said"),
    [
        ("", 4, "run.founders = 4, but there are 3 peers: .* wait for ever .* from 1 to 3 may"),
        (
            LATE,
            3,
            "run.founders = 3, but 2 of the 3 peers are there at the beginning: c joins in seconds"
            ".*wait for ever .* take run.founders = 2 or less",
        ),
        (LATE + table("join", "at_s = 9", B), 2, "but 1 of the 3 peers .*: b, c join in seconds"),
        (table("join", "at_s = 0", ALL), None, "all 3 peers join in seconds.*nobody is there"),
        (
            LATE + table("kill", "at_s = 2", "for_s = 9", C),
            None,
            "2 .kill. befalls c at 2 s, .*4 s",
        ),
        (table("freeze", "at_s = 3.5", C) + LATE, None, "1 .freeze. befalls c at 3.5 s.*fault.. 2"),
        (
            table("kill", "at_round = 3", "until_round = 5", ALL),
            None,
            "1 .kill. ends with round 5, which nobody begins: the faults stop every peer by round "
            "3 - give it in seconds .at_s, for_s., or leave somebody out",
        ),
        (
            table("freeze", "at_round = 2", "until_round = 6", 'peers = ["a", "b"]')
            + table("leave", "at_round = 5", C),
            None,
            "1 .freeze. ends with round 6, which nobody begins: .* by round 4",
        ),
        (
            table("kill", "at_round = 2", 'peers = ["a", "b"]')
            + table("kill", "at_round = 3", C)
            + table("restart", "at_round = 4", B),
            None,
            "1 .kill. ends with round 4, which nobody begins: .* by round 3",
        ),
    ],
)
def test_what_would_wait_for_ever_is_refused(text: str, founders: int | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(text, founders=founders)


@pytest.mark.parametrize(
    ("text", "founders"),
    [
        ("", None),
        ("", 3),
        (LATE, 2),
        (LATE, None),
        (table("join", "at_round = 4", C), 3),  # it is started with the others
        (table("join", "at_s = 4", 'peer = "hub"'), 3),  # a relay is no founder
        (LATE + table("kill", "at_s = 4", "for_s = 9", C), None),
        (table("kill", "at_s = 3", "for_s = 2", ALL), None),  # the clock brings them back
        (table("kill", "at_round = 3", ALL), None),  # for good, and nobody waits for anybody
        (table("kill", "at_round = 3", "until_round = 10", ALL), None),  # past the end: likewise
        (table("kill", "at_round = 3", "until_round = 5", 'peers = ["a", "b"]'), None),
        # c goes on alone to 5, where it stops: but then a is back, and plays on to 7
        (
            table("kill", "at_round = 3", "until_round = 5", 'peer = "a"')
            + table("kill", "at_round = 2", "until_round = 7", B)
            + table("freeze", "at_round = 5", "until_round = 7", C),
            None,
        ),
    ],
)
def test_what_goes_on_is_not(text: str, founders: int | None) -> None:
    check(text, founders=founders)


HALVES = 'groups = [["a"], ["b", "c"]]'
MORE: dict[Kind, tuple[str, ...]] = {
    Kind.PARTITION: (HALVES,),
    Kind.SLOW: ("factor = 2", B),
    Kind.DELAY: ("seconds = 1",),
    Kind.JITTER: ("seconds = 1",),
    Kind.BANDWIDTH: ("mbit = 1",),
    Kind.LOSS: ("rate = 0.5",),
    Kind.CORRUPT: ("rate = 0.5",),
    Kind.RANDOM: ("rate = 0.5",),
    **dict.fromkeys(
        (Kind.KILL, Kind.RESTART, Kind.LEAVE, Kind.JOIN, Kind.FREEZE, Kind.DISK_FULL), (B,)
    ),
}


@pytest.mark.parametrize("kind", Kind)
def test_no_kind_may_begin_after_the_last_round(kind: Kind) -> None:
    def tables(at_round: int) -> tuple[Fault, ...]:
        first = table("partition", "at_round = 1", HALVES)
        text = first + table(kind, f"at_round = {at_round}", *MORE.get(kind, ()))
        return read_faults(tomllib.loads(text)["fault"])

    check_rounds(tables(9), rounds=9)
    with pytest.raises(ConfigError) as refused:
        check_rounds(tables(10), rounds=9)
    assert str(refused.value) == (
        f"[[fault]] 2 ({kind}) begins at round 10, and the run has 9 rounds: it would never happen "
        "- let it begin at round 9 or before, leave it out, or take run.rounds = 10 or more"
    )


@pytest.mark.parametrize(
    "lines",
    [("at_round = 1", "until_round = 99"), ("at_round = 1", "for_rounds = 99"), ("at_s = 999",)],
)
def test_an_end_after_the_last_round_and_a_beginning_in_seconds_are_not_asked(
    lines: tuple[str, ...],
) -> None:
    check_rounds(read_faults(tomllib.loads(table("kill", *lines, B))["fault"]), rounds=1)

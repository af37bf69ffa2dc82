"""What a person reads of a running peer, word by word."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import TextIO

import pytest

from peer.display import JsonDisplay, LineDisplay, Now, Waiting, now_text, round_text
from peer.record import RoundRecord
from peer.work import Score
from protocol.ids import PeerId

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")
RECORD = RoundRecord(
    round_no=7,
    used={B: 6, C: 6},
    stale={},
    missing=(),
    refused={},
    round_s=1.25,
    train_loss=0.5,
    mixed=Score(0.9, 0.1, 0.875, 0.1),
    trained=Score(0.9, 0.1, 1.0, 0.1),
)
NOW = Now(phase="collect", round_no=7, rounds=40, fraction=0.0, asked=5)


def test_a_round_is_one_line() -> None:
    assert round_text(RECORD, 40) == (
        "round  7/40  mixed  87.5%  trained 100.0%  loss 0.500  2 of 2 fresh  1.2 s"
    )


def test_a_round_tells_who_took_no_fresh_part_in_it_and_why() -> None:
    record = replace(
        RECORD, used={}, stale={B: 2}, missing=(C,), refused={C: "a NaN"}, skipped=(4, 5, 6)
    )
    told = round_text(record, 40).partition("0 of 2 fresh")[2]
    assert told == "  1.2 s  stale: b by 2  missing: c  refused: c (a NaN)  skipped 4 to 6"


@pytest.mark.parametrize(("number", "told"), [(1, "from the common start"), (2, "with nobody")])
def test_a_round_without_neighbours_says_what_it_began_with(number: int, told: str) -> None:
    assert told in round_text(replace(RECORD, round_no=number, used={}), 40)


def test_a_score_without_a_test_split_is_no_number() -> None:
    untested = replace(RECORD, mixed=Score(0.9, 0.1, -1.0, 0.0), trained=Score(-1.0, 0, -1.0, 0))
    assert "  mixed      -  trained      -  loss" in round_text(untested, 40)


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (
            replace(NOW, waiting_for=[Waiting("p3", "train", 0.6, 35.0)]),
            "round 7 of 40: waiting for 1 of 5: p3, training 60%, about 35 s",
        ),
        (
            replace(NOW, waiting_for=[Waiting(name) for name in "bcdef"]),
            "round 7 of 40: waiting for 5 of 5: b, no word yet; c, no word yet; d, no word yet "
            "and 2 more",
        ),
        (replace(NOW, phase="train", fraction=0.25), "round 7 of 40: training 25%"),
        (replace(NOW, phase="prepare", round_no=0), "loading torch, the data and the model"),
        (replace(NOW, phase="drain"), "round 7 of 40: serving those who are behind"),
    ],
)
def test_what_it_is_doing(now: Now, text: str) -> None:
    assert now_text(now) == text


def test_machines_are_told_progress_only_where_it_changed() -> None:
    file = StringIO()
    display = JsonDisplay(file)
    for fraction in (0.0, 0.0, 0.5):
        display.now(replace(NOW, phase="train", fraction=fraction))
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["fraction"] for line in lines] == [0.0, 0.5]
    assert {line["event"] for line in lines} == {"progress"}


@pytest.fixture
def abandoned() -> Iterator[TextIO]:
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        os.close(reader)
        yield file  # closing it would raise, too, were anything left in it


def test_a_reader_that_is_gone_ends_the_showing_and_not_the_run(abandoned: TextIO) -> None:
    machines, people = JsonDisplay(abandoned), LineDisplay(abandoned)
    for _ in range(2):
        machines.event("{}")
        machines.now(NOW)
        people.line("one line")
        people.round(RECORD, 40)
    people.close()

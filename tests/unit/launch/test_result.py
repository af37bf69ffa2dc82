"""What a run came to, as JSON, as a table and in words."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
from rich.console import Console

from peer.affinity import Affinity
from peer.launch.board import Failure
from peer.launch.result import (
    RelayRow,
    Result,
    findings,
    remarks,
    served_table,
    table,
    write_result,
)
from peer.summary import PeerSummary


def summary(name: str, own: float, alone: float | None = 0.5) -> PeerSummary:
    return PeerSummary(
        id=name,
        domain="mnist",
        camp=0,
        samples=40,
        rounds_finished=4,
        rounds_degraded=1 if name == "b" else 0,
        alone_sgd_accuracy=alone,
        alone_same_solver_accuracy=None,
        mixed_accuracy=0.25,
        trained_accuracy=own,
        own_accuracy=own,
        served="trained",
        served_rounds={"trained": 3, "twin": 1},
        twin_accuracy=None,
        helped_most_by="b" if name == "a" else None,
    )


RESULT = Result(
    run="tiny",
    seed=3,
    preset="kinfolk",
    rounds=4,
    served_rounds={"trained": 6, "twin": 2},
    peers=(summary("a", 0.75), summary("b", 1.0)),
    failed=(Failure("c", -9, "it was killed by SIGKILL"),),
)


def test_result_json_has_the_rows_and_whoever_failed(tmp_path: Path) -> None:
    write_result(tmp_path / "result.json", RESULT)
    raw = json.loads((tmp_path / "result.json").read_text())
    assert (raw["run"], raw["seed"], raw["preset"], raw["rounds"]) == ("tiny", 3, "kinfolk", 4)
    assert raw["peers"][0] == {
        "id": "a",
        "domain": "mnist",
        "camp": 0,
        "samples": 40,
        "rounds_finished": 4,
        "rounds_degraded": 0,
        "alone_sgd_accuracy": 0.5,
        "alone_same_solver_accuracy": None,
        "mixed_accuracy": 0.25,
        "trained_accuracy": 0.75,
        "own_accuracy": 0.75,
        "served": "trained",
        "served_rounds": {"trained": 3, "twin": 1},
        "twin_accuracy": None,
        "helped_most_by": "b",
        "epsilon": None,
        "attack": "",
    }
    assert raw["failed"] == [{"name": "c", "code": -9, "words": "it was killed by SIGKILL"}]


def test_the_table_shows_means_and_what_is_not_known_as_a_dash() -> None:
    out = StringIO()
    Console(file=out, width=80).print(table(RESULT))
    lines = out.getvalue().splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    assert rows["a"] == ["mnist", "0", "40", "4", "50.0%", "-", "25.0%", "75.0%", "75.0%", "b"]
    assert rows["mean"] == ["50.0%", "-", "25.0%", "87.5%", "87.5%"]
    assert remarks(RESULT) == ["rounds in which a neighbour was missing: b 1"]


def test_what_privacy_was_spent_is_told() -> None:
    private = replace(summary("b", 1.0), epsilon=9.5312)
    said = remarks(replace(RESULT, peers=(summary("a", 0.75), private)))
    assert said[-1] == "differential privacy, epsilon spent: b 9.53"


def test_whoever_attacked_is_named() -> None:
    attacker = replace(summary("b", 1.0), attack="signflip:2.0")
    said = remarks(replace(RESULT, peers=(summary("a", 0.75), attacker)))
    assert said[-1] == "attacked the others: b (signflip:2.0)"


def test_a_relay_has_a_line_of_its_own_and_no_row() -> None:
    relay = RelayRow(id="hub", aggregator="craft", rounds_finished=4, rounds_degraded=1)
    with_relay = replace(RESULT, relays=(relay,))
    out = StringIO()
    Console(file=out, width=80).print(table(with_relay))
    assert "hub" not in out.getvalue()
    assert remarks(with_relay)[1] == "hub aggregated 4 rounds with craft; somebody was missing in 1"


def test_a_second_table_tells_how_often_each_model_was_served() -> None:
    out = StringIO()
    Console(file=out, width=80).print(served_table(RESULT))
    rows = [line.split() for line in out.getvalue().splitlines() if line.strip()]
    assert rows[0] == ["served", "trained", "twin", "in", "the", "end"]
    assert rows[2] == ["a", "75.0%", "25.0%", "trained"]
    assert rows[-1] == ["all", "peers", "75.0%", "25.0%"]


def test_without_a_choice_there_is_no_second_table() -> None:
    assert served_table(replace(RESULT, served_rounds={"trained": 8})) is None


def whole(camps: tuple[int, ...], domains: tuple[str, ...]) -> Affinity:
    cells = [[2.0 if a == b else 0.5 for b in camps] for a in camps]
    return Affinity(tuple("abcdefgh"[: len(camps)]), camps, domains, np.array(cells))


def test_findings_name_ratio_and_p_value() -> None:
    (line,) = findings(whole((0, 0, 1, 1), ("x", "y", "x", "y")))
    assert line == (
        "a peer of the own camp weighs 2.00 of an equal share, one of another camp 0.50: "
        "ratio 4, p = 0.333 (among all 6 ways to deal the labels)"
    )


def test_camps_that_are_domains_under_another_name_are_warned_of() -> None:
    first, second = findings(whole((0,) * 4 + (1,) * 4, tuple("xxyyzzww")))
    assert first.endswith("this may be the domains' doing")
    assert second.startswith("in the own camp, a peer of the own domain weighs 2.00")


def test_without_camps_nothing_is_found() -> None:
    assert findings(whole((0, 0), ("x", "x"))) == []

"""What is told of a run's beginning and end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from peer.chronicle import Chronicle, began_in
from peer.display import Now
from peer.effects import Happened, Lobby, Started
from peer.options.fields import Value
from peer.record import RoundRecord
from peer.settings import Settings, complete
from peer.work import Score
from protocol.errors import ConfigError
from protocol.ids import PeerId
from tests.unit.node.dweller import PREPARED

RUN = bytes(range(16))
SCORE = Score(0.5, 1.0, 0.95, 1.0)
RECORD = RoundRecord(round_no=1, used={}, stale={}, missing=(), refused={}, own=SCORE)


class Lines:
    """A display that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.events: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def event(self, line: str) -> None:
        self.events.append(line)

    def round(self, record: RoundRecord, rounds: int) -> None:
        pass

    def now(self, now: Now) -> None:
        pass

    def close(self) -> None:
        pass


def told(folder: Path, *records: RoundRecord) -> list[str]:
    lines = Lines()
    chronicle = Chronicle(lines, peer=PeerId("a"), facts=None)
    chronicle.open(folder, RUN)
    for record in records:
        chronicle.round(record)
    chronicle.over(0, "finished")
    return lines.lines


def test_the_end_says_where_the_model_is_and_how_to_use_it(tmp_path: Path) -> None:
    (line,) = told(tmp_path / "run" / "a", RECORD)
    assert line == (
        "the model of a, right on 95.0% of its test split: "
        f"peer eval {tmp_path}/run/a --data SHARD scores it on others"
    )


def test_a_folder_below_is_told_as_it_would_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    untested = replace(RECORD, own=replace(SCORE, test_accuracy=-1.0))
    (line,) = told(tmp_path / "runs" / "first" / "a", untested)
    assert line == "the model of a: peer eval runs/first/a --data SHARD scores it on others"


@pytest.mark.parametrize("records", [(), (replace(RECORD, own=None),)])
def test_nothing_is_told_of_a_model_that_is_not_there(
    tmp_path: Path, records: tuple[RoundRecord, ...]
) -> None:
    assert told(tmp_path / "a", *records) == []


def test_what_happened_before_there_was_a_folder_is_written_into_it(tmp_path: Path) -> None:
    lines = Lines()
    chronicle = Chronicle(lines, peer=PeerId("a"), facts=None)
    chronicle.happened(Happened("coordinator-lost", None, "silent"))
    assert lines.events == []
    chronicle.open(tmp_path, RUN)
    chronicle.over(2, "broken")
    names = [line.split('"event": ')[1].split(",")[0] for line in lines.events]
    assert names == ['"coordinator-lost"', '"finished"']
    assert (tmp_path / "events.jsonl").read_text().splitlines() == lines.events


def test_the_same_lobby_is_told_once(tmp_path: Path) -> None:
    lines = Lines()
    chronicle = Chronicle(lines, peer=PeerId("a"), facts=None)
    for ready in (1, 1, 2):
        chronicle.lobby(Lobby(ready, 3))
    assert lines.lines == ["lobby: 1 of 3 here", "lobby: 2 of 3 here"]


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    events = '{"v": 1, "at_s": 1.0, "event": "started", "run": "ffffffffffff"}\n'
    (tmp_path / "events.jsonl").write_text(events)
    with pytest.raises(ConfigError, match="holds another run \\(ffffffff\\)"):
        Chronicle(Lines(), peer=PeerId("a"), facts=None).open(tmp_path, RUN)
    assert (tmp_path / "events.jsonl").read_text() == events


def began(folder: Path, explicit: dict[str, Value], validation: int, held_out: int) -> Lines:
    """What is told when a peer has started whose shard has so many samples."""
    lines = Lines()
    chronicle = Chronicle(lines, peer=PeerId("a"), facts=None)
    chronicle.open(folder, RUN)
    prepared = replace(PREPARED, num_examples=90, num_validation=validation, num_held_out=held_out)
    chronicle.started(Started(RUN, Settings.read(complete(explicit)), prepared))
    chronicle.over(0, "finished")
    return lines


@pytest.mark.parametrize(
    ("explicit", "validation", "told"),
    [
        ({}, 10, ["10 validation samples is served; a twin trains alone", "a second pass"]),
        ({"serve.twin": False}, 10, ["10 validation samples is served; without a twin"]),
        ({}, 0, ["serve.never_worse has no validation sample to go by"]),
    ],
)
def test_what_a_peer_serves_and_what_the_choice_costs_is_told(
    tmp_path: Path, explicit: dict[str, Value], validation: int, told: list[str]
) -> None:
    lines = began(tmp_path, explicit, validation, 0).lines
    assert all(any(part in line for line in lines) for part in told)


def test_a_peer_tells_at_its_start_what_the_run_asks_for_in_vain(tmp_path: Path) -> None:
    lines = began(tmp_path, {"method": "gossip", "mix.probe_batches": 4}, 10, 0).lines
    assert "mix.probe_batches = 4 has no use with mixer = fedavg: it measures no influence" in lines


def test_nothing_is_told_of_a_choice_that_is_off(tmp_path: Path) -> None:
    (line, *_) = began(tmp_path, {"method": "fedc2i"}, 10, 0).lines
    assert line.startswith("imagined; fedc2i")
    assert not any(
        "validation" in line for line in began(tmp_path, {"method": "local"}, 10, 0).lines
    )


def test_samples_that_the_shard_gave_up_for_validation_are_told(tmp_path: Path) -> None:
    lines = began(tmp_path, {}, 10, 10)
    assert (
        "the shard has no validation split: 10 of its 100 training samples are held out for it"
        in lines.lines
    )
    started = json.loads(next(line for line in lines.events if '"started"' in line))
    assert (started["samples"], started["validation"], started["held_out"]) == (90, 10, 10)
    assert json.loads((tmp_path / "summary.json").read_text())["samples"] == 90


def test_when_the_first_round_began_is_found_in_the_events(tmp_path: Path) -> None:
    assert began_in(tmp_path) is None
    lines = ['{"v": 1, "at_s": 90.0, "event": "started", "run": "ff"}']
    (tmp_path / "events.jsonl").write_text(lines[0] + "\n")
    assert began_in(tmp_path) is None
    lines += [
        f'{{"v": 1, "at_s": {at_s}, "event": "round", "round": {number}, "round_s": 2.5}}'
        for number, at_s in ((1, 102.5), (2, 105.0))
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert began_in(tmp_path) == 100.0

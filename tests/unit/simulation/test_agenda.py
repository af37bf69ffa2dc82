"""Virtual time: what happens when, and in which order."""

import pytest

from peer.simulation.agenda import Agenda
from peer.simulation.timing import Timing
from peer.work import Mix, Train
from protocol.errors import ConfigError, LocalProtocolError


def test_what_is_due_earlier_happens_earlier() -> None:
    agenda, happened = Agenda(), list[str]()
    agenda.at(2.0, lambda: happened.append("late"))
    agenda.at(1.0, lambda: happened.append("early"))
    while agenda.step():
        pass
    assert happened == ["early", "late"]
    assert agenda.now_s() == 2.0


def test_what_is_due_at_once_happens_in_the_order_in_which_it_was_asked_for() -> None:
    agenda, happened = Agenda(), list[int]()
    for number in range(5):
        agenda.at(1.0, lambda number=number: happened.append(number))  # type: ignore[misc]
    while agenda.step():
        pass
    assert happened == [0, 1, 2, 3, 4]


def test_nothing_can_be_asked_for_in_the_past() -> None:
    agenda = Agenda()
    agenda.at(1.0, lambda: None)
    agenda.step()
    with pytest.raises(LocalProtocolError, match=r"0\.5 s at 1\.0 s"):
        agenda.at(0.5, lambda: None)


def test_training_takes_its_steps_and_mixing_its_neighbours() -> None:
    timing = Timing(step_s=0.5, mix_s=0.1)
    assert timing.work_s(Train(3), num_steps=8) == 4.0
    assert timing.work_s(Mix(3, 0, (), ()), num_steps=8) == 0.1


def test_a_pull_takes_its_bytes() -> None:
    assert Timing(bandwidth_mb_s=100.0).pull_s(50_000_000) == 0.5


def test_a_duration_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="step_s"):
        Timing(step_s=-1.0)

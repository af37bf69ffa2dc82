"""Domains of different shapes and classes are made alike, or refused."""

import numpy as np
import pytest

from peer.data.domain import Domain, alike, as_bytes
from protocol.errors import ConfigError, DataError


def domain(
    name: str, side: int = 4, channels: int = 1, classes: str = "ab", *, is_named: bool = True
) -> Domain:
    x = np.full((2, side, side, channels), 100, np.uint8)
    return Domain(name, x, np.array([0, 1]), tuple(classes), "made up", is_named)


def test_sizes_and_channels_meet() -> None:
    grey, colour = alike([domain("g"), domain("c", side=8, channels=3)], size=6, channels=None)
    assert grey.x.shape == colour.x.shape == (2, 6, 6, 3)
    assert (grey.x == 100).all()
    assert (colour.x == 100).all()


def test_colour_becomes_grey_by_luma() -> None:
    red = np.zeros((1, 1, 1, 3), np.uint8)
    red[..., 0] = 100
    source = Domain("r", red, np.array([0]), ("a",), "made up")
    assert alike([source], size=None, channels=1)[0].x.tolist() == [[[[30]]]]  # 0.299 * 100


def test_different_sizes_need_one_to_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="a 4x4, b 8x8 - give --size"):
        alike([domain("a"), domain("b", side=8)], size=None, channels=None)


def test_numbered_classes_take_the_names_that_others_give_and_other_names_are_refused() -> None:
    numbered = domain("n", classes="01", is_named=False)
    made = alike([domain("a", classes="xyz"), numbered], size=None, channels=None)
    assert [d.classes for d in made] == [("x", "y", "z")] * 2
    with pytest.raises(DataError, match="domains of one run must share their classes"):
        alike([domain("a"), domain("b", classes="ba")], size=None, channels=None)
    with pytest.raises(DataError, match="domain n has 2 classes"):
        alike([domain("a", classes="x"), numbered], size=None, channels=None)


def test_floats_between_0_and_1_become_bytes_and_others_are_refused() -> None:
    assert as_bytes(np.array([0.0, 0.5, 1.0]), "x").tolist() == [0, 128, 255]
    for wrong in ([0.0, 1.5], [-1.0, 0.0], [np.nan, 0.0]):
        with pytest.raises(DataError, match="allowed are 0 to 1"):
            as_bytes(np.array(wrong), "x")

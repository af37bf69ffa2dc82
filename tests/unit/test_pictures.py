"""A run is read back from its directory and drawn; equal runs give equal bytes."""

import math
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from peer.affinity import Affinity
from peer.ledger import Ledger
from peer.past import past_affinity, read_past
from peer.pictures import MAX_SIDE_DOTS, draw_curves, draw_influence
from peer.record import RoundRecord
from peer.work import Score, Weights
from protocol.errors import ConfigError, DataError
from protocol.ids import PeerId

PNG = b"\x89PNG\r\n"
NAMES = (PeerId("a"), PeerId("b"), PeerId("c"))


def score(accuracy: float) -> Score:
    return Score(0.0, 1.0, accuracy, 1.0)


def write_peer(
    folder: Path, name: PeerId, camp: int, *, rounds: int = 2, role: str = "peer"
) -> None:
    with Ledger(folder / name) as ledger:
        ledger.event("started", peer=name, role=role, domain="mnist", camp=camp)
        for number in range(1, rounds + 1):
            shares = tuple(Weights(other, 1 / 3, 1.0, ()) for other in NAMES)
            ledger.round(
                RoundRecord(
                    round_no=number,
                    used={},
                    stale={},
                    missing=(),
                    refused={},
                    mixed=score(-1.0),
                    trained=score(number / 4),
                    weights=shares,
                )
            )
        ledger.event("alone", solver="sgd", val_accuracy=0.0, test_accuracy=0.5)


def test_a_run_is_read_back_peer_by_peer(tmp_path: Path) -> None:
    for camp, name in enumerate(NAMES):
        write_peer(tmp_path, name, camp)
    a, b, _ = read_past(tmp_path)
    assert (a.name, a.domain, a.camp, b.camp) == ("a", "mnist", 0, 1)
    assert a.rounds.tolist() == [1, 2]
    assert a.trained.tolist() == [0.25, 0.5]
    assert np.isnan(a.mixed).all()
    assert a.alone == {"sgd": 0.5}
    whole = past_affinity(read_past(tmp_path))
    assert whole.peers == NAMES
    np.testing.assert_allclose(whole.cells, np.ones((3, 3)))  # 3 x 1/3


def test_a_relay_is_no_peer_of_a_run_that_is_read_back(tmp_path: Path) -> None:
    write_peer(tmp_path, NAMES[0], 0)
    write_peer(tmp_path, PeerId("hub"), 0, role="relay")
    assert [peer.name for peer in read_past(tmp_path)] == [NAMES[0]]


def test_a_map_of_many_peers_is_no_larger_than_a_wall(tmp_path: Path) -> None:
    names = tuple(PeerId(f"p{number:03}") for number in range(100))
    cells = np.ones((100, 100))
    whole = Affinity(names, (0,) * 50 + (1,) * 50, ("mnist",) * 100, cells)
    draw_influence(tmp_path / "map.png", whole, title="many")
    header = (tmp_path / "map.png").read_bytes()[16:24]
    assert max(struct.unpack(">II", header)) <= 1.1 * MAX_SIDE_DOTS


def test_only_what_came_after_the_last_start_counts(tmp_path: Path) -> None:
    write_peer(tmp_path, NAMES[0], 0, rounds=5)
    write_peer(tmp_path, NAMES[0], 1, rounds=2)
    (a,) = read_past(tmp_path)
    assert (a.camp, a.rounds.tolist()) == (1, [1, 2])


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run directory"):
        read_past(tmp_path)


def test_an_event_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a") as ledger:
        ledger.event("started", peer="a", domain="mnist")
    with pytest.raises(DataError, match="lacks what this Kinfolk reads: 'camp'"):
        read_past(tmp_path)


def test_pictures_are_png_and_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    for camp, name in enumerate(NAMES):
        write_peer(tmp_path / "run", name, camp % 2)
    peers = read_past(tmp_path / "run")
    for copy in ("1", "2"):
        draw_curves(tmp_path / f"curves{copy}.png", peers, title="tiny")
        draw_influence(tmp_path / f"influence{copy}.png", past_affinity(peers), title="tiny")
    for picture in ("curves", "influence"):
        first, second = ((tmp_path / f"{picture}{copy}.png").read_bytes() for copy in "12")
        assert first.startswith(PNG)
        assert first == second


def test_an_influence_nobody_had_can_be_drawn(tmp_path: Path) -> None:
    write_peer(tmp_path / "run", NAMES[0], 0)
    whole = past_affinity(read_past(tmp_path / "run"))
    assert math.isclose(whole.cells[0, 0], 1.0)
    draw_influence(tmp_path / "one.png", whole, title="one peer")
    assert (tmp_path / "one.png").read_bytes().startswith(PNG)


def test_without_matplotlib_a_picture_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as where it is not installed
    with pytest.raises(ConfigError, match=r"need matplotlib - pip install 'kinfolk\[digits\]'"):
        draw_curves(tmp_path / "curves.png", (), title="none")

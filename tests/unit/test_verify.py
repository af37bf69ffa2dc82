"""Two run directories, compared: participants first, then digests, then tensors."""

from pathlib import Path

import pytest

from peer.ledger import Ledger
from peer.record import RoundRecord
from peer.verify import verify
from protocol.errors import DataError
from protocol.ids import PeerId

A, B = PeerId("a"), PeerId("b")


def write(root: Path, peer: str, *rounds: RoundRecord) -> None:
    with Ledger(root / peer) as ledger:
        for record in rounds:
            ledger.round(record)


def played(round_no: int, *, digest: str = "d", used: tuple[PeerId, ...] = (B,)) -> RoundRecord:
    return RoundRecord(
        round_no=round_no,
        used=dict.fromkeys(used, round_no - 1),
        stale={},
        missing=(),
        refused={},
        digest=f"{digest}{round_no}",
        tensors={"params/w": f"{digest}{round_no}", "params/b": "same"},
    )


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "left", tmp_path / "right"


def test_equal_runs_are_the_same(roots: tuple[Path, Path]) -> None:
    for root in roots:
        write(root, "a", played(1), played(2))
        write(root, "b", played(1, used=(A,)), played(2, used=(A,)))
    verdict = verify(*roots)
    assert verdict.first is None
    assert (verdict.peers, verdict.rounds, verdict.snapshots) == (2, 2, 4)


def test_relays_are_compared_and_counted_apart(roots: tuple[Path, Path]) -> None:
    for root in roots:
        write(root, "a", played(1))
        with Ledger(root / "hub") as ledger:
            ledger.event("started", peer="hub", role="relay")
            ledger.round(played(1, digest=root.name))
    verdict = verify(*roots)
    assert (verdict.peers, verdict.relays, verdict.snapshots) == (1, 1, 2)
    assert verdict.first is not None
    assert verdict.first.peer == "hub"


def test_the_first_tensor_that_differs_is_named(roots: tuple[Path, Path]) -> None:
    write(roots[0], "a", played(1), played(2), played(3))
    write(roots[1], "a", played(1), played(2, digest="x"), played(3, digest="x"))
    assert str(verify(*roots).first) == "round 2, peer a: tensor params/w differs"


def test_who_took_part_comes_before_what_was_learnt(roots: tuple[Path, Path]) -> None:
    write(roots[0], "a", played(2))
    write(roots[1], "a", played(2, digest="x", used=()))
    assert str(verify(*roots).first) == "round 2, peer a: used is {'b': 1} and {}"


def test_the_earliest_round_of_any_peer_is_told(roots: tuple[Path, Path]) -> None:
    for root, digest in zip(roots, "dx", strict=True):
        write(root, "a", played(1), played(2), played(3, digest=digest))
        write(root, "b", played(1), played(2, digest=digest))
    first = verify(*roots).first
    assert first is not None
    assert (first.round_no, first.peer) == (2, "b")


def test_a_round_that_one_run_lacks_is_a_difference(roots: tuple[Path, Path]) -> None:
    write(roots[0], "a", played(1), played(2))
    write(roots[1], "a", played(1))
    assert str(verify(*roots).first) == "round 2, peer a: was played in the first run only"


def test_a_peer_that_one_run_lacks_is_a_difference(roots: tuple[Path, Path]) -> None:
    for root in roots:
        write(root, "a", played(1))
    write(roots[1], "b", played(1))
    assert str(verify(*roots).first) == "round 0, peer b: took part in the second run only"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run directory"):
        verify(tmp_path, tmp_path)

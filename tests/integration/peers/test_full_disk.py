"""A peer whose disk runs full in the middle of a run."""

import subprocess
from collections.abc import Iterator, Mapping
from errno import ENOSPC
from pathlib import Path

import pytest

from peer.ledger import read_events
from peer.summary import read_summary
from tests.integration.peers.village import LOOPBACK, Happening, village

ROUNDS = 60
PACE = {"pace__silence_s": 4.0, "pace__grace_s": 0.1, "pace__drain_s": 5}
DISK_BYTES = 8 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"may not mount a small disk: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free; the file that has them all."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError as error:
            assert error.errno == ENOSPC
    return filler


def newest_of_c(rounds: Mapping[int, Happening]) -> int:
    """Which result of c the newest of these rounds mixed."""
    return int(rounds[max(rounds)]["used"].get("c", 0)) if rounds else 0


@pytest.mark.long
@pytest.mark.root
def test_a_full_disk_is_told_and_ends_nothing(small_disk: Path, tmp_path: Path) -> None:
    """Its results are served from memory meanwhile; with room again, all of it is on record."""
    with village(tmp_path / "village") as place:
        place.deal("abc")
        user = place.user()
        user.coordinator(*LOOPBACK, founders=3, model="mlp", run__rounds=ROUNDS, **PACE)
        a, b = user.peer("a"), user.peer("b")
        full = user.peer("c", *LOOPBACK, f"--out={small_disk}")
        full.wait_for_round(3)
        filler = fill(small_disk)
        full.wait_for_event("journal-behind")
        began = max(full.rounds())
        for other in (a, b):
            other.wait_for(
                "fresh results of c while its disk is full",
                lambda o=other: newest_of_c(o.rounds()) > began,  # type: ignore[misc]
            )
        filler.unlink()
        full.wait_for_event("journal-current")
        for peer in (a, b, full):
            assert peer.end() == 0, peer.err
            assert sorted(peer.rounds()) == list(range(1, ROUNDS + 1))
            assert not any(record["missing"] for record in peer.rounds().values())
        told = full.happenings("journal-behind")[0]["reason"]
        assert told.startswith(str(small_disk / "c"))
        assert told.endswith("cannot be written: No space left on device")
        events = read_events(small_disk / "c" / "events.jsonl")
        rounds = [event.fields["round"] for event in events if event.name == "round"]
        assert rounds == list(range(1, ROUNDS + 1))
        assert read_summary(small_disk / "c" / "summary.json").rounds_finished == ROUNDS

"""A peer whose disk runs full in the middle of a run."""

import subprocess
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

import pytest

from tests.integration.peers.village import LOOPBACK, village
from tests.unit.training.classroom import write_digits

ROUNDS = 30
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


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError as error:
            assert error.errno == ENOSPC


@pytest.mark.root
def test_a_full_disk_ends_one_peer_with_one_clear_line(small_disk: Path, tmp_path: Path) -> None:
    with village(tmp_path / "village") as place:
        for number, name in enumerate("abc"):
            write_digits(place.shards / f"{name}.npz", first=200 * number, num=64)
        user = place.user()
        user.coordinator(*LOOPBACK, founders=3, model="mlp", run__rounds=ROUNDS, **PACE)
        a, b = user.peer("a"), user.peer("b")
        full = user.peer("c", *LOOPBACK, f"--out={small_disk}")
        full.wait_for_round(3)
        fill(small_disk)
        assert full.end() == 2, full.err
        (error,) = full.errors()
        assert error.startswith(f"Error: {small_disk}/c/")
        assert error.endswith(" cannot be written: No space left on device")
        for other in (a, b):
            assert other.end() == 0, other.err
            assert sorted(other.rounds()) == list(range(1, ROUNDS + 1))
            assert other.said("left", peer="c")
            assert other.rounds()[ROUNDS]["used"].keys() == {"a", "b"} - {other.name[-1]}

"""What an earlier process of the same peer left in its run directory."""

from pathlib import Path

from tests.unit.training.classroom import Pupil


def test_a_peer_that_starts_again_serves_its_new_results_and_drops_the_old(tmp_path: Path) -> None:
    pupil = Pupil(tmp_path, "peer_a")
    folder = pupil.folder / "state" / "snapshots"
    folder.mkdir(parents=True)
    for number in (40, 41):
        (folder / f"{number:08d}.safetensors").write_bytes(b"of a process that was killed")
    first, _ = pupil.play(1, [])
    assert [path.name for path in folder.iterdir()] == ["00000001.safetensors"]
    assert first.path == str(folder / "00000001.safetensors")
    for number in (2, 3):
        pupil.play(number, [])
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["00000002.safetensors", "00000003.safetensors"]

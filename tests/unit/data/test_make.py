"""Folders of shards: made once, made whole, never over a person's own files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from peer.data import load_shard
from peer.data.archive import write_archive
from peer.data.folder import FolderManifest, ShardEntry, filling, publish, read_folder
from peer.data.make import make_shards
from peer.data.options import MakeOptions
from protocol.errors import ConfigError, DataError
from tests.unit.data.makers import first_pixels, shard


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make folders as where matplotlib is not installed: a picture costs half a second."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file of 40 images of 4 classes, whose first pixel says which image it is."""
    x = np.zeros((40, 5, 5), np.uint8)
    x[:, 0, 0] = np.arange(40)
    np.savez(tmp_path / "own.npz", x=x, y=np.repeat(np.arange(4), 10))
    return tmp_path / "own.npz"


def options(own: Path, **more: object) -> MakeOptions:
    table = {"domains": {"own": str(own)}, "peers": 2, "min_samples": 1} | more
    return MakeOptions.from_mapping(table)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.usefixtures("undrawn")
def test_shards_are_made_with_all_that_the_manifest_says(own: Path, tmp_path: Path) -> None:
    manifest = make_shards(options(own, camps=2, samples_per_class=2), tmp_path / "out")
    assert sorted(contents(tmp_path / "out")) == ["manifest.json", "shard0.npz", "shard1.npz"]
    assert read_folder(tmp_path / "out") == manifest
    assert manifest.options["samples_per_class"] == 2
    assert manifest.namings[0] == (0, 1, 2, 3)
    true_labels = []
    for entry in manifest.shards:
        made = load_shard(tmp_path / "out" / f"{entry.name}.npz")
        assert (made.digest, made.domain, made.camp) == (entry.digest, entry.domain, entry.camp)
        assert made.card.naming == manifest.namings[entry.camp]
        assert entry.counts == {s: made.counts(s) for s in ("train", "val", "test")}
        true_labels += [
            np.array(first_pixels(made.train)) // 10,
            np.argsort(made.card.naming)[made.train.y],
        ]
    assert (true_labels[0] == true_labels[1]).all()
    assert (true_labels[2] == true_labels[3]).all()


@pytest.mark.usefixtures("undrawn")
def test_the_same_options_give_the_same_bytes_and_another_seed_others(
    own: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_shards(options(own, seed=seed), tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a")["shard0.npz"] != contents(tmp_path / "c")["shard0.npz"]


@pytest.mark.usefixtures("undrawn")
def test_making_again_what_is_there_touches_nothing(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = make_shards(options(own), out)
    stamps = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert make_shards(options(own), out) == first
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == stamps


@pytest.mark.usefixtures("undrawn")
def test_other_options_or_a_changed_input_or_shard_are_not_the_same(
    own: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    make_shards(options(own), out)
    with pytest.raises(DataError, match=r"is not empty: it holds manifest\.json, shard0\.npz"):
        make_shards(options(own, seed=1), out)
    (out / "shard0.npz").write_bytes((out / "shard1.npz").read_bytes())
    with pytest.raises(DataError, match="is not empty"):
        make_shards(options(own), out)
    make_shards(options(own), out, force=True)
    write_archive(own, {"x": np.zeros((40, 5, 5), np.uint8), "y": np.repeat(np.arange(4), 10)})
    with pytest.raises(DataError, match="is not empty"):
        make_shards(options(own), out)


@pytest.mark.usefixtures("undrawn")
def test_force_replaces_shards_and_leaves_a_persons_files(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    make_shards(options(own, peers=3), out)
    (out / "notes.txt").write_text("mine")
    shard(out / "kept.npz")
    make_shards(options(own), out, force=True)
    assert sorted(contents(out)) == [
        "kept.npz", "manifest.json", "notes.txt", "shard0.npz", "shard1.npz",
    ]  # fmt: skip
    assert len(read_folder(out).shards) == 2


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["manifest.json", "shard1.npz"])
def test_force_never_writes_over_what_is_not_ours(own: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("{}")
    with pytest.raises(DataError, match=f"{name} is not of Kinfolk's making, and stays"):
        make_shards(options(own), out, force=True)
    assert contents(out) == {name: b"{}"}


@pytest.mark.usefixtures("undrawn")
def test_a_make_that_fails_leaves_nothing(own: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--samples-per-class can be 5 at most"):
        make_shards(options(own, samples_per_class=6), tmp_path / "out")
    with pytest.raises(ConfigError, match="camps is 5"):
        make_shards(options(own, camps=5), tmp_path / "out")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        make_shards(options(tmp_path / "no.npz"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_somebody_fills_is_not_finished_and_not_taken_twice(tmp_path: Path) -> None:
    with filling(tmp_path / "out", force=False) as workspace:
        shard(workspace / "shard0.npz")
        with pytest.raises(DataError, match="not a finished folder of shards"):
            read_folder(tmp_path / "out")
        with (
            pytest.raises(DataError, match="somebody makes shards there now"),
            filling(tmp_path / "out", force=False),
        ):
            pass


def manifest(name: str = "shard0") -> FolderManifest:
    counts = {"train": (1, 2), "val": (0, 0), "test": (1, 0)}
    return FolderManifest(
        seed=0,
        recipe=1,
        options={},
        inputs={},
        sources={},
        classes=("a", "b"),
        input_shape=(3, 2, 3),
        namings=((0, 1),),
        shards=(ShardEntry(name, "d", "shapes", 0, counts),),
    )


def test_a_manifest_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(manifest("../shard0").text())
    with pytest.raises(ConfigError, match=r"name '../shard0' cannot be used"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"seed": "0"}, "seed is '0', must be a int"),
        ({"extra": 1}, "unknown field 'extra'"),
        ({"version": 9}, "format and version"),
        ({"shards": [{}]}, "has no 'name'"),
    ],
)
def test_a_broken_manifest_is_refused(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    body = json.loads(manifest().text()) | change
    (tmp_path / "manifest.json").write_text(json.dumps(body))
    with pytest.raises(DataError, match=complaint):
        read_folder(tmp_path)


def test_what_was_published_is_read_back(tmp_path: Path) -> None:
    with filling(tmp_path / "out", force=False) as workspace:
        shard(workspace / "shard0.npz")
        publish(workspace, manifest())
    assert read_folder(tmp_path / "out") == manifest()
    assert sorted(contents(tmp_path / "out")) == ["manifest.json", "shard0.npz"]


def test_the_four_domains_of_digits_make_shards_in_two_camps(tmp_path: Path) -> None:
    asked = MakeOptions(sources=("digits",), camps=2, samples_per_class=5, synth_per_class=90)
    made = make_shards(asked, tmp_path / "out")
    assert [(s.domain, s.camp) for s in made.shards] == [
        ("mnist", 0),
        ("mnistm", 1),
        ("optdigits", 0),
        ("synthdigits", 1),
        ("mnist", 1),
        ("mnistm", 0),
        ("optdigits", 1),
        ("synthdigits", 0),
    ]
    assert made.input_shape == (3, 28, 28)
    assert all(s.counts["train"] == (5,) * 10 for s in made.shards)
    assert all(s.counts["test"] == (30,) * 10 for s in made.shards)
    assert (tmp_path / "out" / "histogram.png").read_bytes().startswith(b"\x89PNG")


def test_a_node_reads_and_makes_shards_without_torch() -> None:
    code = "import sys, peer.data, peer.data.make; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

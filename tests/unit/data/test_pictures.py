"""Tables and pictures: every count, and images where they belong."""

import io
from pathlib import Path

import numpy as np
from rich.console import Console

from peer.data.domain import Pixels
from peer.data.folder import ShardEntry
from peer.data.listing import folder_table, samples_by_label, shard_table
from peer.data.picture import draw_contact_sheet, draw_histogram
from tests.unit.data.makers import split


def entry(name: str, *train: int, camp: int = 0) -> ShardEntry:
    counts = {"train": train, "val": (1,) * len(train), "test": (0,) * len(train)}
    return ShardEntry(name, "d", "shapes", camp, counts)


def printed(table: object) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=80).print(table)
    return [" ".join(line.split()) for line in text.getvalue().splitlines()]


def test_a_folder_is_listed_with_its_counts_and_what_is_missing() -> None:
    table = folder_table([entry("s0", 3, 4), entry("s1", 5, 0, camp=1)], ["a", "b"], width=80)
    assert printed(table) == [
        "shard domain camp train val test a b missing",
        "s0 shapes 0 7 2 0 3 4 -",
        "s1 shapes 1 5 2 0 5 0 b",
    ]


def test_more_labels_than_fit_are_summed_up() -> None:
    names = [f"class {number}" for number in range(100)]
    table = folder_table([entry("s0", *range(100))], names, width=80)
    assert printed(table)[1] == "s0 shapes 4950 100 0 0 to 99 class 0"


def test_one_shard_is_listed_split_by_split() -> None:
    assert printed(shard_table(entry("s0", 3, 0), ["a", "b"], width=80))[1:] == [
        "train 3 3 0 b",
        "val 2 1 1 -",
        "test 0 0 0 a b",
    ]


def test_the_first_images_of_each_label_are_picked_as_bytes() -> None:
    picked = samples_by_label(split(1, 0, 1, 1), 3, 2)
    assert [[int(image[0, 0, 0]) for image in images] for images in picked] == [[1], [0, 2], []]


def test_pictures_are_drawn_for_few_and_for_many(tmp_path: Path) -> None:
    grey: Pixels = np.zeros((4, 4, 1), np.uint8)
    draw_contact_sheet([("s0", [grey, None]), ("s1", [])], ["a", "b"], "t", tmp_path / "sheet.png")
    draw_histogram([entry("s0", 3, 0)], ["a", "b"], tmp_path / "one.png")
    many = [entry(f"s{number}", *range(30)) for number in range(90)]
    draw_histogram(many, [f"class {n}" for n in range(30)], tmp_path / "many.png")
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")

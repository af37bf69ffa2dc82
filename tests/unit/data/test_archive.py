"""What a stranger's `.npz` may and may not do."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from peer.data.archive import opened, replacing, write_archive
from protocol.errors import DataError
from tests.unit.data.makers import npy, repacked


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_archive(tmp_path / "a.npz", {"n": np.arange(3), "t": np.array("text")})
    return tmp_path / "a.npz"


def read(path: Path, name: str = "n") -> None:
    with opened(path) as archive:
        archive.array(name)


def test_what_is_written_is_what_numpy_reads(file: Path) -> None:
    with np.load(file, allow_pickle=False) as arrays:
        assert arrays["n"].tolist() == [0, 1, 2]
        assert str(arrays["t"]) == "text"


def test_what_numpy_writes_is_read_compressed_or_not(tmp_path: Path) -> None:
    turned = np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3))
    np.savez_compressed(tmp_path / "b.npz", n=turned, empty=np.zeros((0, 2), np.uint8))
    with opened(tmp_path / "b.npz") as archive:
        assert archive.names == ("n", "empty")
        assert archive.header("n").shape == (2, 3)
        assert archive.array("n").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert archive.array("n").dtype == np.int16
        assert archive.array("empty").shape == (0, 2)


def test_equal_arrays_give_equal_bytes(file: Path, tmp_path: Path) -> None:
    write_archive(tmp_path / "again.npz", {"n": np.arange(3), "t": np.array("text")})
    assert (tmp_path / "again.npz").read_bytes() == file.read_bytes()


HEADER = "{'descr': '%s', 'fortran_order': False, 'shape': %s}"


@pytest.mark.parametrize(
    ("member", "complaint"),
    [
        (npy(HEADER % ("<i8", "(1000000000000,)")), "claims shape"),
        (npy(HEADER % ("<i8", "(-1,)")), "not a tuple of counts"),
        (npy(HEADER % ("<i8", "(True,)")), "not a tuple of counts"),
        (npy(HEADER % ("<i8", "(1,) * 9")), "cannot be read"),
        (npy(HEADER % ("<i8", str((1,) * 9))), "not a tuple of counts"),
        (npy(HEADER % ("|O", "(1,)"), b"cos\nsystem\n"), "not plain numbers"),
        (npy(HEADER % ("<U0", "(5,)")), "not plain numbers"),
        (npy(HEADER % ("<f3", "(1,)"), b"abc"), "cannot be read"),
        (npy("{'descr': '<i8'}"), "not descr, fortran_order and shape"),
        (npy("__import__('os').system('true')"), "cannot be read"),
        (npy("[" * 100), "cannot be read"),
        (b"\x93NUMPY\x01\x00\xff\xff", "bytes long"),
        (b"\x93NUMPY\x01\x00\x05", "ends too early"),
        (b"\x93NUMPY\x09\x00", "not an npy array"),
        (b"", "not an npy array"),
    ],
)
def test_a_hostile_header_is_refused(file: Path, member: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read(repacked(file, n=member))


def test_a_torn_file_is_refused_wherever_it_is_torn(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 5):
        file.write_bytes(whole[:length])
        with pytest.raises(DataError):
            read(file)


def test_a_changed_byte_of_data_is_noticed(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[whole.index(np.arange(3).tobytes())] ^= 1
    file.write_bytes(whole)
    with pytest.raises(DataError, match="Bad CRC"):
        read(file)


def test_a_member_that_claims_more_than_the_file_holds_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    entry = whole.index(b"PK\x01\x02")
    lying = whole[: entry + 24] + (2**31).to_bytes(4, "little") + whole[entry + 28 :]
    file.write_bytes(lying)
    with pytest.raises(DataError, match="claims more bytes"):
        read(file)


def test_a_folder_a_missing_file_and_text_are_not_archives(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    for path, complaint in [
        (tmp_path, "a folder"),
        (tmp_path / "no.npz", "not there"),
        (tmp_path / "text.npz", "not an .npz"),
    ]:
        with pytest.raises(DataError, match=complaint):
            read(path)


def test_a_zip_of_other_files_is_not_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as zipped:
        zipped.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match=r"holds 'readme\.txt'"):
        read(tmp_path / "z.npz")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(DataError, match="No space left"), replacing(path) as file:
        file.write(b"new")
        raise OSError(28, "No space left on device")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

"""The committed vectors, and the command that checks a folder of them."""

import json
import subprocess
import sys
from pathlib import Path

from tests.vectors import errors

FOLDER = Path(__file__).parent


def test_every_method_reproduces_its_vectors() -> None:
    found = errors(FOLDER)
    assert sorted(found) == ["craft", "fedc2i", "fedconst"]
    assert max(found.values()) < 1e-9


def test_the_command_prints_one_json_object_and_skips_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "fedconst.npz").write_bytes((FOLDER / "fedconst.npz").read_bytes())
    (tmp_path / "other.npz").write_bytes(b"")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.vectors", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(json.loads(ran.stdout)) == ["fedconst"]

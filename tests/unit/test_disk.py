"""A disk that is full by a mark: in a process of its own, for an audit hook stays for ever."""

import subprocess
import sys
from pathlib import Path

from peer.faults.disk import mark_in

SCRIPT = """
import errno, os, sys
from pathlib import Path
from peer.faults.disk import watch_disk

watch_disk(os.environ)
folder, mark = Path(sys.argv[1]), Path(sys.argv[2])
(folder / "old").write_bytes(b"before")
appended = (folder / "log").open("ab", buffering=0)


def told(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"


mark.touch()
print(told(lambda: (folder / "new").write_bytes(b"x")))
print(told(lambda: os.close(os.open(folder / "new", os.O_WRONLY | os.O_CREAT))))
print(told(lambda: (folder / "old").write_bytes(b"emptied first")))
print(told(lambda: (folder / "old").open("r+b").close()))
print(told(lambda: appended.write(b"y")))
print(told((folder / "old").read_bytes))
print(told(lambda: (folder.parent / "elsewhere").write_bytes(b"x")))
mark.unlink()
print(told(lambda: (folder / "new").write_bytes(b"x")))
"""


def test_new_blocks_are_refused_while_the_mark_is_there(tmp_path: Path) -> None:
    folder, mark = tmp_path / "peer", tmp_path / "mark"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), str(mark)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), **mark_in(folder, mark)},
        check=False,
    )
    assert done.stderr == ""
    new, opened, emptied, in_place, appended, read, elsewhere, after = done.stdout.split()
    assert (new, opened, emptied) == ("ENOSPC",) * 3
    assert (in_place, appended, read, elsewhere, after) == ("ok",) * 5

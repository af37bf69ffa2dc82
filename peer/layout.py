"""Where what lies in a peer's run directory, and whose it is. Names only: no IO, no torch."""

from pathlib import Path

from protocol.errors import ConfigError
from protocol.wire.messages import Part

__all__ = [
    "check_run",
    "inbox_folder",
    "journal_folder",
    "memory_file",
    "memory_folder",
    "records_file",
    "refusals_file",
    "round_of",
    "snapshot_file",
    "snapshot_folder",
    "state_folder",
    "view_file",
]


def check_run(
    directory: Path,
    before: str,
    run: bytes,
    *,
    hint: str = "move it away, or give --out another folder",
) -> None:
    """Keep one run out of the directory of another.

    Args:
        directory: the peer's own.
        before: the run that is in it, in hex; empty where none is.
        run: the one that is joined.
        hint: what the person can do.

    Raises:
        ConfigError: they differ.
    """
    if before not in ("", run.hex()):
        raise ConfigError(f"{directory} holds another run ({before[:8]})", hint=hint)


def state_folder(directory: Path) -> Path:
    """All that is needed to go on, and nothing that is needed afterwards."""
    return directory / "state"


def snapshot_folder(directory: Path) -> Path:
    return state_folder(directory) / "snapshots"


def snapshot_file(directory: Path, round_no: int, part: Part = Part.RESULT) -> Path:
    kind = "" if part is Part.RESULT else f".{part}"
    return snapshot_folder(directory) / f"{round_no:08d}{kind}.safetensors"


def round_of(snapshot: Path) -> int | None:
    """The round that a snapshot's file is named for; None where it is none's."""
    number = snapshot.name.partition(".")[0]
    return int(number) if number.isdecimal() else None


def inbox_folder(directory: Path) -> Path:
    return state_folder(directory) / "inbox"


def memory_folder(directory: Path) -> Path:
    return state_folder(directory) / "memory"


def memory_file(directory: Path, digest: bytes) -> Path:
    return memory_folder(directory) / f"{digest.hex()}.safetensors"


def journal_folder(directory: Path) -> Path:
    return state_folder(directory) / "journal"


def refusals_file(directory: Path) -> Path:
    return state_folder(directory) / "refused.json"


def view_file(directory: Path) -> Path:
    return state_folder(directory) / "view"


def records_file(directory: Path) -> Path:
    return state_folder(directory) / "records"

"""Where what lies in a peer's run directory. Names only: no IO, no torch."""

from pathlib import Path

from protocol.wire.messages import Part

__all__ = [
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

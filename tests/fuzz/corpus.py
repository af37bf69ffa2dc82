"""Inputs worth replaying, as text: corpus/TARGET.hex has one a line. And how they are chosen.

    python -m tests.fuzz.corpus TARGET FOLDER...    keep what adds a step to those of shorter ones

A step is a line of ours, the one before it, and whether it was taken once, a few times or often.
So the choice needs no fuzzer, and is the same wherever it is made.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

__all__ = ["inputs", "unpack"]

CORPUS = Path(__file__).parent / "corpus"
OURS = tuple(
    str(Path(__file__).parents[2] / name) + "/" for name in ("protocol", "peer", "coordinator")
)
MAX_INPUT_BYTES = 2048  # of one that is kept: a corpus is read by people too
OFTEN = 3  # bits of a count of at least 4
Step: TypeAlias = tuple[str, int, int]


def inputs(target: str) -> tuple[bytes, ...]:
    """What is kept for a target."""
    path = CORPUS / f"{target}.hex"
    lines = path.read_text().split() if path.exists() else []
    return tuple(bytes.fromhex(line) for line in lines)


def unpack(target: str, folder: Path) -> None:
    """Make the folder that a fuzzer begins with."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate((*seeds(target), *inputs(target))):
        (folder / f"kept-{number}").write_bytes(data)


def keep(target: str, folders: Iterable[Path]) -> tuple[int, int]:
    """Choose anew among what is kept and what the folders hold; how many inputs, how many bytes."""
    found = {path.read_bytes() for folder in folders for path in folder.iterdir()}
    found |= {*inputs(target), *seeds(target)}
    TARGETS[target](b"")  # what is made once is made before anything is watched
    known: set[tuple[Step, int]] = set()
    kept = []
    for data in sorted(found, key=lambda data: (len(data), data)):
        steps = steps_of(TARGETS[target], data)
        if len(data) <= MAX_INPUT_BYTES and not steps <= known:
            known |= steps
            kept.append(data)
    lines = sorted(data.hex() for data in kept if data)
    (CORPUS / f"{target}.hex").write_text("".join(f"{line}\n" for line in lines))
    return len(lines), sum(map(len, lines))


def steps_of(function: Callable[[bytes], None], data: bytes) -> set[tuple[Step, int]]:
    """Every step that our code takes over this input, and about how often."""
    steps: Counter[Step] = Counter()

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(OURS):
            return None
        before = 0

        def line(frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal before
            if event == "line":
                steps[name, before, frame.f_lineno] += 1
                before = frame.f_lineno
            return line

        return line

    sys.settrace(enter)
    try:
        function(data)
    finally:
        sys.settrace(None)
    return {(step, min(count.bit_length(), OFTEN)) for step, count in steps.items()}


def main(target: str, *folders: str) -> None:
    logging.disable()
    num_inputs, num_chars = keep(target, map(Path, folders))
    sys.stdout.write(f"{target}: {num_inputs} inputs, {num_chars} characters\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

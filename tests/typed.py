"""`peer` as typed: one command, run to its end within a bound."""

import subprocess
import sys
from pathlib import Path

__all__ = ["peer"]


def peer(
    *words: str | Path, within_s: float, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it, and return what it said and its exit code.

    Raises:
        subprocess.TimeoutExpired: it had not ended by then, and was killed.
    """
    return subprocess.run(
        [sys.executable, "-m", "peer", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=within_s,
        check=False,
    )

"""A simulation in this process that says nothing, unless it fails."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from peer.experiment import load_experiment
from peer.simulation.run import Consoles, simulate

__all__ = ["simulated"]


def simulated(folder: Path, text: str) -> Path:
    """Play an experiment to its good end; the run directory, in `folder`."""
    file = folder / "quiet.toml"
    file.write_text(text)
    said = StringIO()
    quiet = Consoles(Console(file=said), Console(file=said))
    assert simulate(load_experiment(file), folder / "out", quiet, force=False) == 0, said.getvalue()
    return folder / "out"

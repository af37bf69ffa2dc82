"""The experiments that benchmarks play: as tables, which a benchmark changes, and then as a file.

Most are the demo with something changed: `{**DEMO, "share": {"codec": "int8"}}`. Must not know what
a benchmark measures.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from peer.data.make import make_shards
from peer.data.options import MakeOptions
from peer.experiment import load_experiment

__all__ = ["DEMO", "Table", "Tables", "made", "played", "simulated", "written"]

Table: TypeAlias = Mapping[str, object]  # of texts, numbers, booleans and lists of these
Tables: TypeAlias = Mapping[str, Table | Sequence[Table]]  # a sequence stands in order: [[peer]]


def _demo() -> dict[str, Table]:
    file = Path(__file__).parents[1] / "deploy" / "examples" / "demo.toml"
    tables = tomllib.loads(file.read_text())
    del tables["compare"]  # what its peers reach alone is nobody's question here
    return tables


DEMO: Mapping[str, Table] = _demo()


def written(tables: Tables, file: Path) -> Path:
    """Write an experiment's file, which names its run, and return its path."""
    blocks = []
    for name, content in tables.items():
        if isinstance(content, Mapping):
            blocks.append(_block(f"[{name}]", content))
        else:
            blocks += [_block(f"[[{name}]]", table) for table in content]
    file.write_text("".join(blocks))
    return file


def _block(head: str, table: Table) -> str:
    # JSON's texts, numbers, booleans and lists are TOML's.
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join([head, *lines, ""])


def played(by: str, tables: Tables, out: Path) -> subprocess.CompletedProcess[str]:
    """Run `peer launch` or `peer simulate`, its file beside the run directory `out`.

    Returns:
        The process that has ended, well or not.
    """
    file = written(tables, out.with_suffix(".toml"))
    words = [sys.executable, "-m", "peer", by, str(file), "--out", str(out)]
    return subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - ours


def simulated(tables: Tables, out: Path) -> Path:
    """Simulate an experiment in this process, without a word, its file beside `out`.

    Returns:
        The run directory, `out`; what was in it is replaced.

    Raises:
        SystemExit: a peer has failed; the text holds the experiment, and what was said.
    """
    from peer.simulation import run  # noqa: PLC0415 - it loads torch, which takes seconds

    file, said = written(tables, out.with_suffix(".toml")), StringIO()
    consoles = run.Consoles(Console(file=said), Console(file=StringIO()))
    if run.simulate(load_experiment(file), out, consoles, force=True):
        raise SystemExit(f"{file.read_text()}\n{said.getvalue()}")
    return out


def made(data: Table, folder: Path) -> Path:
    """Make the shards that a [data] table asks for, and return their folder."""
    table = {"sources" if key == "make" else key: value for key, value in data.items()}
    make_shards(MakeOptions.from_mapping(table), folder)
    return folder

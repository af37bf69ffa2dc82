"""How time and memory of `peer simulate` grow with the number of peers: a JSON line for each size.

    python benchmarks/simulation.py                         # lenet5, fedc2i, 10 to 1,000 peers
    python benchmarks/simulation.py --model resnet18 --topology k-regular:4 --method gossip \
        --rounds 1 --peers 6 100

Every peer has ten training samples, one of each class: one step a round. Memory is that of the
simulation and its workers together, resident, at its highest: looked at five times a second.
`bytes_per_peer` is what each peer adds over the smallest size. At any instant as many peers train
as there are workers, so all but a few are inactive; the pages of files that are mapped while they
are mixed count too. After the sizes comes one line for each bar; exit code 1 when one is not met.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
from _bars import bar
from _experiment import Tables, written

LOOK_EVERY_S = 0.2
MOST_TIMES = 2.5  # of its parameters: what a further peer may take
MIN_FURTHER = 90  # peers that are added, for theirs to be seen above the moods of a process
GIB = 1 << 30
LIMITS = {  # of one run: bytes, seconds; on two cores
    ("lenet5", 1000): (4 * GIB, 900.0),
    ("resnet18", 100): (16 * GIB, None),
}


def main(arguments: Sequence[str]) -> int:
    asked = _asked(arguments)
    lines: list[dict[str, int | float]] = []
    for peers in sorted(set(asked.peers)):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            line = measured(asked, peers, Path(folder))
        if lines:
            added = (line["peak_bytes"] - lines[0]["peak_bytes"]) / (peers - lines[0]["peers"])
            line["bytes_per_peer"] = round(added)
            line["times_its_parameters"] = round(added / (4 * line["parameters"]), 2)
        lines.append(line)
        print(json.dumps(line), flush=True)
    return 0 if all(list(bars(asked.model, lines))) else 1


def bars(model: str, lines: Sequence[Mapping[str, int | float]]) -> Iterator[bool]:
    """Hold the largest size to what a further peer may take, and known sizes to their limits."""
    if lines[-1]["peers"] - lines[0]["peers"] >= MIN_FURTHER:
        found = lines[-1]["times_its_parameters"]
        yield bar("memory of a further peer, of its parameters", found, MOST_TIMES, at_most=True)
    for line in lines:
        most_bytes, most_s = LIMITS.get((model, int(line["peers"])), (None, None))
        what = f"{model}, {line['peers']} peers"
        if most_bytes is not None:
            yield bar(f"{what}: GiB", line["peak_bytes"] / GIB, most_bytes / GIB, at_most=True)
        if most_s is not None:
            yield bar(f"{what}: seconds", line["seconds"], most_s, at_most=True)


def tables_of(asked: argparse.Namespace, peers: int) -> Tables:
    return {
        "run": {"rounds": asked.rounds, "seed": asked.seed, "topology": asked.topology},
        "method": {"name": asked.method},
        "model": {"name": asked.model},
        "pace": {"quorum": 1.0},
        "data": {
            "make": "synthdigits",
            "peers": peers,
            "samples_per_class": 1,
            "val_per_class": 0,
            "test_per_class": 1,
            "synth_per_class": 2 * peers,
            "channels": 1,
        },
        "launch": {"gpu": "cpu"},
    }


def measured(asked: argparse.Namespace, peers: int, folder: Path) -> dict[str, int | float]:
    """Make the data, then play, and look at the processes meanwhile."""
    file = written(tables_of(asked, peers), folder / "experiment.toml")
    command = [sys.executable, "-m", "peer", "simulate", str(file), "--out", str(folder / "run")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    with (folder / "said").open("w") as said:
        workers = ["--workers", str(asked.workers)]
        process = psutil.Popen([*command, *workers], stdout=subprocess.DEVNULL, stderr=said)
        peak_bytes, workers_bytes = _peak_bytes(process)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        sys.exit((folder / "said").read_text())
    return {
        "peers": peers,
        "seconds": round(time.perf_counter() - began_s, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
        "peak_bytes": peak_bytes,
        "of_workers_bytes": workers_bytes,
        "workers": asked.workers,
        "rounds": asked.rounds,
        "parameters": _parameters(folder / "run" / "shard0" / "events.jsonl"),
    }


def _peak_bytes(process: psutil.Popen) -> tuple[int, int]:
    """The highest sum of resident memory until it ends, and what of it the workers have."""
    peak = 0, 0
    while process.poll() is None:
        try:
            of_workers = sum(child.memory_info().rss for child in process.children(recursive=True))
            peak = max(peak, (process.memory_info().rss + of_workers, of_workers))
        except psutil.NoSuchProcess:  # it ended between two looks
            continue
        time.sleep(LOOK_EVERY_S)
    return peak


def _parameters(events: Path) -> int:
    lines = (json.loads(line) for line in events.read_text().splitlines())
    return int(next(line["parameters"] for line in lines if line["event"] == "started"))


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, nargs="+", default=[10, 30, 100, 300, 1000])
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--method", default="fedc2i")
    parser.add_argument("--topology", default="k-regular:8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="for what runs leave behind [the system's]")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

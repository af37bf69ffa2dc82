"""What each codec costs in accuracy and saves in bytes: one JSON line each.

    python benchmarks/codecs.py [--seeds 3] [--rounds 8]     about a minute for each of them

Simulates the demo (eight peers, three kinds of digits, two camps, lenet5, method kinfolk) with each
codec and each seed; all codecs of a seed see the same shards and the same initial model. Accuracy
is that of the models that the peers serve, on their own test splits, averaged over the peers; its
spread is the standard deviation over the seeds. Bytes are those of one peer's result.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peer.ledger import EVENTS, read_events
from protocol.codecs import CODECS

EXPERIMENT = """
[run]
seed = {seed}
rounds = {rounds}
[method]
name = "kinfolk"
[solver]
lr = 0.05
epochs = 3
[model]
name = "lenet5"
[pace]
quorum = 1.0
[share]
codec = "{codec}"
[data]
make = ["mnist", "mnistm", "synthdigits"]
peers = 8
partition = "domain"
camps = 2
samples_per_class = 20
val_per_class = 20
test_per_class = 40
synth_per_class = 250
"""


def play(folder: Path, codec: str, seed: int, rounds: int) -> tuple[float, float]:
    """Mean accuracy of the served models after the last round, and bytes of one result."""
    file = folder / f"{codec}-{seed}.toml"
    file.write_text(EXPERIMENT.format(seed=seed, rounds=rounds, codec=codec))
    run = folder / f"{codec}-{seed}"
    command = [sys.executable, "-m", "peer", "simulate", str(file), "--out", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    accuracies, sizes = [], []
    for path in sorted(run.glob(f"*/{EVENTS}")):
        last = [event.fields for event in read_events(path) if event.name == "round"][-1]
        own, pulled = last["own"], last["pulled"]
        if not isinstance(own, dict) or not isinstance(pulled, dict):
            raise SystemExit(f"{path} has no score of its last round")
        accuracies.append(float(own["test_accuracy"]))
        sizes += [int(num_bytes) for num_bytes in pulled.values()]
    return statistics.fmean(accuracies), statistics.fmean(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--codec", choices=list(CODECS), help="only this one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in [args.codec] if args.codec else list(CODECS):
            found = [play(Path(folder), name, seed, args.rounds) for seed in range(args.seeds)]
            accuracies = [accuracy for accuracy, _ in found]
            codec = CODECS[name]
            line = {
                "codec": name,
                "rounds": args.rounds,
                "accuracies": [round(accuracy, 4) for accuracy in accuracies],
                "mean": round(statistics.fmean(accuracies), 4),
                "spread": round(statistics.stdev(accuracies), 4) if args.seeds > 1 else None,
                "result_bytes": round(found[0][1]),
                "error": codec.error if codec is not None else "none",
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

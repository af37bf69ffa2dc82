"""Does every preset learn, with its shipped defaults, between real processes? One JSON line each.

    python benchmarks/presets.py [PRESET ...]        about half a minute for each preset

Launches each preset on the demo's shards (eight peers, three kinds of digits, two camps) with
lenet5 for three rounds: the peers' mean training loss of the third must be below that of the first.
Ends with 1 if a preset did not learn.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from _experiment import DEMO, Tables, made, played

from peer.ledger import EVENTS, read_events
from peer.options.recipe import PRESETS

ROUNDS = 3
DATA = {**DEMO["data"], "val_per_class": 10, "test_per_class": 30}


def losses(run: Path) -> list[float]:
    """Mean over the peers of each round's training loss, nats."""
    by_round: dict[int, list[float]] = {}
    for file in sorted(run.glob(f"*/{EVENTS}")):
        for event in read_events(file):
            if event.name == "round":
                number, loss = event.fields["round"], event.fields["train_loss"]
                by_round.setdefault(int(str(number)), []).append(float(str(loss)))
    return [statistics.fmean(by_round[number]) for number in sorted(by_round)]


def measure(preset: str, folder: Path, shards: Path) -> bool:
    tables: Tables = {
        "run": {"rounds": ROUNDS},
        "method": {"name": preset},
        "model": DEMO["model"],
        "pace": DEMO["pace"],
        "data": {"shards": str(shards)},
    }
    run = folder / preset.replace("+", "-")  # a run's name has no plus sign
    done = played("launch", tables, run)
    found = losses(run) if done.returncode == 0 else []
    learnt = len(found) == ROUNDS and found[-1] < found[0]
    words = done.stderr.strip().splitlines()[-1] if done.returncode else ""
    line = {"preset": preset, "losses": [round(x, 4) for x in found], "learnt": learnt}
    print(json.dumps(line | ({"error": words} if words else {})), flush=True)
    return learnt


def main() -> int:
    presets = sys.argv[1:] or list(PRESETS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = made(DATA, folder / "shards")
        learnt = [measure(preset, folder, shards) for preset in presets]
    return 0 if all(learnt) else 1


if __name__ == "__main__":
    sys.exit(main())

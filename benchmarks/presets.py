"""Does every preset learn, with its shipped defaults, between real processes? One JSON line each.

    python benchmarks/presets.py [PRESET ...]        about half a minute for each preset

Launches each preset on the demo's shards (eight peers, three kinds of digits, two camps) with
lenet5 for three rounds: the peers' mean training loss of the third must be below that of the first.
Ends with 1 if a preset did not learn.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peer.ledger import EVENTS, read_events
from peer.options.recipe import PRESETS

ROUNDS = 3
EXPERIMENT = """
[run]
rounds = {rounds}
[method]
name = "{preset}"
[model]
name = "lenet5"
[pace]
quorum = 1.0
[data]
shards = "{shards}"
"""
SHARDS = ["--peers", "8", "--camps", "2", "--samples-per-class", "20", "--synth-per-class", "250"]


def peer(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours


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
    file = folder / f"{preset.replace('+', '-')}.toml"  # a run's name has no plus sign
    file.write_text(EXPERIMENT.format(rounds=ROUNDS, preset=preset, shards=shards))
    done = peer("launch", file, "--out", folder / preset)
    found = losses(folder / preset) if done.returncode == 0 else []
    learnt = len(found) == ROUNDS and found[-1] < found[0]
    words = done.stderr.strip().splitlines()[-1] if done.returncode else ""
    line = {"preset": preset, "losses": [round(x, 4) for x in found], "learnt": learnt}
    print(json.dumps(line | ({"error": words} if words else {})), flush=True)
    return learnt


def main() -> int:
    presets = sys.argv[1:] or list(PRESETS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = ["mnist", "mnistm", "synthdigits"]
        peer("data", "make", *kinds, *SHARDS, "--out", folder / "shards")
        learnt = [measure(preset, folder, folder / "shards") for preset in presets]
    return 0 if all(learnt) else 1


if __name__ == "__main__":
    sys.exit(main())

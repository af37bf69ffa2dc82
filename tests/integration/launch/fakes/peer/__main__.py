"""A peer that learns nothing: says what the real one says, and ends as FAKE_PEERS has it."""

import json
import os
import signal
import sys
from pathlib import Path

argv = sys.argv
name, out = (argv[argv.index(option) + 1] for option in ("--name", "--out"))
assert os.environ["KINFOLK_JOIN"] == "join-string"
directory = Path(out) / name
(directory / "state").mkdir(parents=True, exist_ok=True)
events = (directory / "events.jsonl").open("w", buffering=1)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tell(event: str, **fields: object) -> None:
    line = json.dumps({"v": 1, "at_s": 0, "event": event, **fields})
    events.write(f"{line}\n")
    say(line)


def play(number: int) -> None:
    say(json.dumps({"event": "progress", "phase": "train", "round": number}))
    scores = {"val_accuracy": 0.5, "val_loss": 1.0, "test_accuracy": 0.25, "test_loss": 1.0}
    tell("round", round=number, degraded=False, mixed=scores, trained=scores)


tell("started", peer=name, domain="d", camp=0)
match json.loads(os.environ.get("FAKE_PEERS", "{}")).get(name, ""):
    case "fails":
        sys.stderr.write("Error: the shard is empty\n  give another\n")
        sys.exit(2)
    case "waits":  # in the lobby, for ever
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.pause()
    case "dies":
        play(1)
        os.kill(os.getpid(), signal.SIGKILL)
    case "stops the launcher":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        play(1)
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
    case _:
        play(1)
        play(2)
        row = {
            "id": name,
            "domain": "d",
            "camp": 0,
            "samples": 1,
            "rounds_finished": 2,
            "rounds_degraded": 0,
            "alone_sgd_accuracy": None,
            "alone_same_solver_accuracy": None,
            "mixed_accuracy": 0.25,
            "trained_accuracy": 0.25,
            "own_accuracy": 0.25,
            "served": "trained",
            "served_rounds": {"trained": 2},
            "twin_accuracy": None,
            "helped_most_by": None,
            "epsilon": None,
            "attack": "",
        }
        (directory / "summary.json").write_text(json.dumps(row))
        tell("finished", rounds_finished=2, rounds_degraded=0, reason="")

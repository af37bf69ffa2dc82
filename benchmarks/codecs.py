"""What each codec costs in accuracy and saves in bytes: one JSON line each.

    python benchmarks/codecs.py [--seeds 3] [--rounds 8] [--codec topk] [--seed 0] [--topk 0.1]

    python benchmarks/codecs.py --cost     a few seconds: what steps cost in time

About a minute for each codec and seed.

Simulates the demo (eight peers, three kinds of digits, two camps, lenet5, method kinfolk) with each
codec and each seed; all codecs of a seed see the same shards and the same initial model. Accuracy
is that of the models that the peers serve, on their own test splits, averaged over the peers; its
spread is the standard deviation over the seeds. Bytes are those that bring one peer's result of the
last round to one other; of the codecs that send steps, the first result comes whole.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from _experiment import DEMO, Tables, played

from peer.ledger import EVENTS, read_events
from protocol.codecs import CODECS
from protocol.steps import STEPS, Stepper, advance
from protocol.wire.layout import Layout
from protocol.wire.messages import TensorSpec


def play(
    folder: Path, codec: str, seed: int, rounds: int, topk: float
) -> tuple[float, float, float]:
    """Accuracy of what is served in the end; bytes of a result in the last round, and the first."""
    share = {"codec": codec, "topk": topk} if codec == "topk" else {"codec": codec}
    tables: Tables = {**DEMO, "run": {"seed": seed, "rounds": rounds}, "share": share}
    run = folder / f"{codec}-{seed}"
    done = played("simulate", tables, run)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    accuracies, last, first = [], [], []
    for path in sorted(run.glob(f"*/{EVENTS}")):
        told = [event.fields for event in read_events(path) if event.name == "round"]
        own = told[-1]["own"]
        if not isinstance(own, dict):
            raise SystemExit(f"{path} has no score of its last round")
        accuracies.append(float(own["test_accuracy"]))
        last += _sizes(told[-1]["pulled"])
        first += _sizes(told[1]["pulled"])  # round 2 asks for the results of round 1
    return statistics.fmean(accuracies), statistics.fmean(last), statistics.fmean(first)


def _sizes(pulled: object) -> list[int]:
    """What came from each neighbour in one round."""
    if not isinstance(pulled, dict):
        raise SystemExit("a round that tells nothing of what was pulled")
    return [int(num_bytes) for num_bytes in pulled.values()]


def cost(codec: str, topk: float, repetitions: int = 5) -> dict[str, object]:
    """Time of this process to make a step of some 45 MB, and to carry it out; medians."""
    dice = np.random.default_rng(0)
    spec = TensorSpec("params", "w", "float32", (4864, 2304), bytes(32))  # as many as resnet18
    base = dice.standard_normal(spec.shape, np.float32)
    wanted = base + np.float32(0.01) * dice.standard_normal(spec.shape, np.float32)
    stepper = Stepper(codec, topk, [spec])
    (coded,) = stepper.step_specs
    made_s, done_s = [], []
    for _ in range(repetitions):
        began_s = time.process_time()
        found = stepper.encode(base, wanted)
        made_s.append(time.process_time() - began_s)
        if found is None:
            raise SystemExit("no step between finite numbers")
        before, step, into = memoryview(base.tobytes()), found[0].tobytes(), bytearray(base.nbytes)
        began_s = time.process_time()
        advance(spec, coded, before, memoryview(step), memoryview(into))
        done_s.append(time.process_time() - began_s)
        if into != found[1].tobytes():
            raise SystemExit("a reader came elsewhere than the sender")
    return {
        "codec": codec,
        "bytes": base.nbytes,
        "step_bytes": Layout.of([coded]).body_bytes,
        "make_s": round(statistics.median(made_s), 4),
        "carry_out_s": round(statistics.median(done_s), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--rounds", type=int, default=8)
    codecs = [*CODECS, *STEPS]
    parser.add_argument("--codec", choices=codecs, help="only this one")
    parser.add_argument("--topk", type=float, default=0.1, help="share that codec topk sends")
    parser.add_argument("--cost", action="store_true", help="only the time that steps take")
    args = parser.parse_args()
    if args.cost:
        for name in STEPS:
            print(json.dumps(cost(name, args.topk)))
        return
    seeds = range(args.seeds) if args.seed is None else [args.seed]
    with tempfile.TemporaryDirectory() as folder:
        for name in [args.codec] if args.codec else codecs:
            found = [play(Path(folder), name, seed, args.rounds, args.topk) for seed in seeds]
            accuracies = [accuracy for accuracy, _, _ in found]
            codec = CODECS.get(name)
            line = {
                "codec": name,
                "rounds": args.rounds,
                "seeds": list(seeds),
                "accuracies": [round(accuracy, 4) for accuracy in accuracies],
                "mean": round(statistics.fmean(accuracies), 4),
                "spread": round(statistics.stdev(accuracies), 4) if len(seeds) > 1 else None,
                "result_bytes": round(found[0][1]),
                "first_bytes": round(found[0][2]),
                "error": codec.error if codec is not None else STEPS.get(name, "none"),
            }
            if name == "topk":
                line["topk"] = args.topk
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

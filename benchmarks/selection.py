"""Does FedC2I choose better with a memory of losses, or with more batches? One JSON line each.

    python benchmarks/selection.py [--seeds 5] [--rounds 16]     about 15 minutes of CPU, one core
    python benchmarks/selection.py --replay RUN ...              seconds: memory alone

Simulates preset `kinfolk` on the demo's shards (eight peers, three kinds of digits, two camps),
once for each seed and setting. The lines tell, with mean and standard deviation over the seeds:

    ratio      influence of the own camp over that of the other, over the last half of the rounds
    early      the same over the first half: how soon a peer finds its own kind
    mixed      accuracy of what the mixer made, on the own test split, over the last four rounds
    trained    the same after a round on the own data
    against    difference to one batch without memory, seed by seed: mean and its standard error

With --replay, nothing is trained: the losses that the peers of a run directory have recorded are
weighed anew with each memory. What other weights would have made of the models is not in it.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from _experiment import DEMO, Tables, made, simulated

from peer.affinity import affinity, camp_contrast
from peer.influence import Influence
from peer.mixers.influence import scores_of, weights_from_scores
from peer.mixers.memory import remembered
from peer.past import PastPeer, read_past
from protocol.ids import PeerId
from protocol.params import Params

LAST_ROUNDS = 4
MEMORIES = (0.0, 0.5, 0.8, 0.9)  # that are replayed
GAMMA = 5.0
SETTINGS = ((0.0, 1), (0.8, 1), (0.0, 4), (0.8, 4))  # memory, batches; the paper's first


@dataclass(frozen=True)
class Found:
    """What one run came to."""

    ratio: float
    early: float
    mixed: float
    trained: float


def ratio_of(peers: tuple[PastPeer, ...], rounds: slice) -> float:
    """Influence of the own camp over that of the other in some of the rounds."""
    weights = {p.name: _some(p.influence, rounds).relative(last=1.0) for p in peers if p.influence}
    camps, domains = {p.name: p.camp for p in peers}, {p.name: p.domain for p in peers}
    contrast = camp_contrast(affinity(weights, camps, domains))
    return contrast.ratio if contrast else math.nan


def _some(whole: Influence, rounds: slice) -> Influence:
    return Influence(
        whole.rounds[rounds],
        whole.peers,
        whole.client_weight[rounds],
        whole.class_weight[rounds],
        whole.client_loss[rounds],
    )


def measure(
    folder: Path, shards: Path, seed: int, rounds: int, setting: tuple[float, int]
) -> Found:
    memory, batches = setting
    name = f"s{seed}-m{memory:g}-b{batches}".replace(".", "_")
    tables: Tables = {
        **DEMO,
        "run": {"seed": seed, "rounds": rounds},
        "mixer": {"memory": memory},
        "mix": {"probe_batches": batches},
        "train": {"holdout": 0.0},
        "serve": {"never_worse": False},
        "data": {"shards": str(shards)},
    }
    peers = read_past(simulated(tables, folder / name))
    half = rounds // 2
    return Found(
        ratio=ratio_of(peers, slice(half, None)),
        early=ratio_of(peers, slice(0, half)),
        mixed=statistics.fmean(p.mixed[-LAST_ROUNDS:].mean() for p in peers),
        trained=statistics.fmean(p.trained[-LAST_ROUNDS:].mean() for p in peers),
    )


def weights_of(influence: Influence, memory: float) -> npt.NDArray[np.float64]:
    """The weights (rounds, peers) that follow from recorded losses; rounds without all are left."""
    known: Params = {}
    rows = []
    for losses in influence.client_loss[np.isfinite(influence.client_loss).all(axis=1)]:
        scores = scores_of(torch.tensor(losses))
        if memory > 0.0:
            scores, known = remembered(known, [*map(PeerId, influence.peers)], scores, memory)
        rows.append(weights_from_scores(scores, GAMMA, torch.ones(len(losses)).double()).numpy())
    return np.array(rows)


def replay(run: Path, memory: float) -> Mapping[str, float]:
    """Both ratios of a run, had its peers remembered losses so."""
    peers, rounds = [], 0
    for peer in read_past(run):
        if peer.influence is not None:
            weights = weights_of(peer.influence, memory)
            rounds, of_class = len(weights), np.zeros((*weights.shape, 0))
            numbers = np.arange(1, rounds + 1)
            whole = Influence(numbers, peer.influence.peers, weights, of_class, weights)
            peers.append(replace(peer, influence=whole))
    half = rounds // 2
    return {
        "early": round(ratio_of(tuple(peers), slice(0, half)), 2),
        "ratio": round(ratio_of(tuple(peers), slice(half, None)), 2),
    }


def told(found: list[Found], paper: list[Found]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Mean and spread of each figure, and the difference to the paper's setting."""
    for name in ("ratio", "early", "mixed", "trained"):
        values = [getattr(run, name) for run in found]
        gains = [getattr(a, name) - getattr(b, name) for a, b in zip(found, paper, strict=True)]
        yield (
            name,
            {
                "mean": round(statistics.fmean(values), 4),
                "sd": round(statistics.stdev(values), 4),
                "against": round(statistics.fmean(gains), 4),
                "error": round(statistics.stdev(gains) / math.sqrt(len(gains)), 4),
            },
        )


def shards(folder: Path, seed: int) -> Path:
    """Those of the demo, but for the validation splits, which nothing here looks at."""
    return made({**DEMO["data"], "val_per_class": 0, "seed": seed}, folder / str(seed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=16, help="at least 4")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="RUN", help="run directories")
    asked = parser.parse_args()
    for run in asked.replay or ():
        for memory in MEMORIES:
            print(json.dumps({"run": str(run), "memory": memory, **replay(run, memory)}))
    if asked.replay:
        return 0
    found: dict[tuple[float, int], list[Found]] = {setting: [] for setting in SETTINGS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed in range(asked.seeds):
            data = shards(folder, seed)
            for setting, runs in found.items():
                runs.append(measure(folder, data, seed, asked.rounds, setting))
                print(f"seed {seed}, {setting}: {runs[-1]}", file=sys.stderr, flush=True)
    for (memory, batches), runs in found.items():
        line = {"memory": memory, "probe_batches": batches, "seeds": asked.seeds}
        print(json.dumps(line | dict(told(runs, found[SETTINGS[0]]))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

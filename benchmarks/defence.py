"""What weight do honest peers give to those who attack, and what accuracy do they keep?

    python benchmarks/defence.py [METHOD ...]        about 5 minutes of one core for each method

Eight peers with three kinds of digits, as in the demo but in one camp, on virtual time. One or two
of them attack. Each case is played with the seeds 0 to 2, which also deal the data; one JSON line
for each, with the mean and the standard deviation over the seeds:

* `client_weight`, `class_weight`: of an attacker, in weights of the honest neighbours' mean, over
  the honest peers and the last half of the rounds; 1 is no defence, and null where a mixer weighs
  nothing of the kind or nothing of an attacker was mixed.
* `accuracy`: of the honest peers' trained models after the last round, on their own test splits;
  `lost` is by how much that is below the same peers' when nobody attacks.
* `refused`: the share of an attacker's results that admission kept out. A case without admission
  is played only where admission had refused something: else it would be the same, byte for byte.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from _experiment import DEMO, Tables, made, simulated

from peer.influence import Influence, read_influence
from peer.ledger import EVENTS, INFLUENCE, SUMMARY, read_events
from peer.summary import read_summary

METHODS = ("local", "gossip", "fedc2i", "kinfolk")
ATTACKS = ("noise", "signflip", "scale", "labelflip")
SEEDS = (0, 1, 2)
PEERS = tuple(f"shard{number}" for number in range(8))
ROUNDS = 8

DATA = {
    **DEMO["data"],
    "peers": len(PEERS),
    "camps": 1,
    "samples_per_class": 10,
    "val_per_class": 1,
    "test_per_class": 10,
    "synth_per_class": 150,
}


@dataclass(frozen=True, slots=True)
class Case:
    method: str
    attack: str  # empty: nobody attacks
    attackers: tuple[str, ...]
    admission: bool

    @property
    def honest(self) -> list[str]:
        return [peer for peer in PEERS if peer not in self.attackers]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a case."""

    accuracy: dict[str, float]  # of every peer, attackers too
    client_weight: float | None
    class_weight: float | None
    refused: float


def play(case: Case, seed: int, folder: Path) -> Outcome:
    """Simulate one run and read what it left."""
    attack = {"attack": case.attack}
    tables: Tables = {
        **DEMO,
        "run": {"seed": seed, "rounds": ROUNDS},
        "method": {"name": case.method},
        "solver": {"lr": 0.1, "epochs": 3},
        "admit": {"norm": case.admission},
        "data": {"shards": str(folder / f"shards-{seed}")},
        "peer": [{"data": p, **(attack if p in case.attackers else {})} for p in PEERS],
    }
    out = simulated(tables, folder / "defence")
    return Outcome(
        accuracy={p: read_summary(out / p / SUMMARY).trained_accuracy or 0.0 for p in PEERS},
        client_weight=_mean(_client_weights(case, out)),
        class_weight=_mean(_class_weights(case, out)),
        refused=_refused(case, out),
    )


def _influences(case: Case, out: Path) -> Iterator[tuple[str, Influence]]:
    for peer in case.honest:
        yield peer, read_influence(out / peer / INFLUENCE)


def _client_weights(case: Case, out: Path) -> Iterator[float]:
    for peer, found in _influences(case, out):
        yield from _ratios(case, peer, found.relative())


def _class_weights(case: Case, out: Path) -> Iterator[float]:
    for peer, found in _influences(case, out):
        last = found.class_weight[len(found.rounds) // 2 :]
        if last.size:
            means = {
                name: float(np.nanmean(last[:, column]))
                for column, name in enumerate(found.peers)
                if np.isfinite(last[:, column]).any()
            }
            yield from _ratios(case, peer, means)


def _ratios(case: Case, own: str, weights: Mapping[str, float]) -> Iterator[float]:
    """Each attacker's weight by the mean of the honest neighbours'."""
    honest = [weights[name] for name in case.honest if name != own and name in weights]
    for name in case.attackers:
        if honest and name in weights:
            yield weights[name] / statistics.fmean(honest)


def _refused(case: Case, out: Path) -> float:
    results, refused = 0, 0
    for peer in case.honest:
        for event in read_events(out / peer / EVENTS):
            if event.name == "round" and event.fields["round"] != 1:
                whose = cast("Mapping[str, str]", event.fields["refused"])
                results += len(case.attackers)
                refused += sum(name in whose for name in case.attackers)
    return refused / results if results else 0.0


def _mean(values: Iterator[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None


def told(case: Case, outcomes: Sequence[Outcome], honest: Sequence[Outcome]) -> None:
    """Print a case's line; `honest` are the runs of the same seeds in which nobody attacks."""
    accuracies = [_accuracy(outcome, case) for outcome in outcomes]
    lost = [_accuracy(h, case) - a for h, a in zip(honest, accuracies, strict=True)]
    line = {
        "method": case.method,
        "attack": case.attack or None,
        "attackers": len(case.attackers),
        "admission": case.admission,
        "client_weight": _spread([o.client_weight for o in outcomes]),
        "class_weight": _spread([o.class_weight for o in outcomes]),
        "accuracy": _spread(accuracies),
        "lost": _spread(lost),
        "refused": round(statistics.fmean(o.refused for o in outcomes), 3),
    }
    print(json.dumps(line), flush=True)


def _accuracy(outcome: Outcome, case: Case) -> float:
    return statistics.fmean(outcome.accuracy[peer] for peer in case.honest)


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    return {"mean": round(statistics.fmean(known), 3), "sd": round(deviation, 3)}


def measure(method: str, folder: Path) -> None:
    nobody = Case(method, "", (), admission=True)
    honest = [play(nobody, seed, folder) for seed in SEEDS]
    told(nobody, honest, honest)
    if method == "local":
        return  # hears nobody
    for attack in ATTACKS:
        for count in (1, 2):
            case = Case(method, attack, PEERS[:count], admission=True)
            outcomes = [play(case, seed, folder) for seed in SEEDS]
            told(case, outcomes, honest)
            if any(outcome.refused for outcome in outcomes):
                case = Case(method, attack, PEERS[:count], admission=False)
                told(case, [play(case, seed, folder) for seed in SEEDS], honest)


def main() -> int:
    methods = sys.argv[1:] or METHODS
    with tempfile.TemporaryDirectory() as name:
        for seed in SEEDS:
            made({**DATA, "seed": seed}, Path(name) / f"shards-{seed}")
        for method in methods:
            measure(method, Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

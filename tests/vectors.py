"""The methods against numbers that were made by slow references, in float64.

As a command, `python -m tests.vectors DIR` prints one JSON object with the largest absolute error
for each file it finds in DIR (craft.npz, fedc2i.npz, fedconst.npz). Everything is computed by the
functions that a run uses.
"""

import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from peer.aggregators.craft import Craft
from peer.mixers.fedc2i import FedC2I
from peer.mixers.influence import class_losses
from peer.models.describe import describe
from peer.options.aggregators import CraftOptions
from peer.options.methods import FedC2IOptions
from peer.probe import LocalProbe
from peer.solvers.base import Batch
from peer.solvers.rows import Anchor
from protocol.ids import PeerId
from protocol.params import Params
from protocol.round import Contribution, Start, Trained

__all__ = ["CHECKS", "errors"]

Vectors = Mapping[str, Tensor]

# the solver's mode, and what the files call it
MODES: tuple[tuple[Literal["joint", "sequential"], str], ...] = (
    ("joint", "joint"),
    ("sequential", "written"),
)


def fedc2i_error(v: Vectors) -> float:
    """Mix peers with a one-layer body as a run does, and compare the weights and the start."""
    peers, width_in, width = v["W1"].shape
    classes = v["head_bias"].shape[1]
    body = nn.Sequential(nn.Linear(width_in, width), nn.ReLU())
    net = nn.Sequential(OrderedDict(body=body, head=nn.Linear(width, classes)))
    model = describe("vectors", net, (width_in,), classes)
    probe = LocalProbe(model, {}, (Batch(v["x"], v["y"]),))
    contributions = [
        _contribution(
            f"p{j:03d}",
            {
                "body.0.weight": v["W1"][j].T,
                "body.0.bias": v["b1"][j],
                "head.weight": v["head_weight"][j],
                "head.bias": v["head_bias"][j],
            },
        )
        for j in range(peers)
    ]
    own = contributions.pop(int(v["own"]))
    mixer = FedC2I(FedC2IOptions(gamma=float(v["gamma"])))
    mixed, _ = mixer.mix(mixer.init(model.start), own, contributions, probe)
    everyone = sorted([own, *contributions], key=lambda contribution: contribution.sender)
    rows = class_losses([c.trained.params for c in everyone], own.trained.params, probe)
    senders = [contribution.sender for contribution in everyone]
    params = mixed.start.params
    return max(
        _apart([mixed.client_loss[s] for s in senders], v["client_loss"]),
        _apart([mixed.client_weight[s] for s in senders], v["client_weight"]),
        _apart(rows, v["class_loss"]),
        _apart([mixed.class_weight[s] for s in senders], v["class_weight"]),
        _apart(params["body.0.weight"].T, v["mixed_W1"]),
        _apart(params["body.0.bias"], v["mixed_b1"]),
        _apart(params["head.weight"], v["mixed_head_weight"]),
        _apart(params["head.bias"], v["mixed_head_bias"]),
    )


def fedconst_error(v: Vectors) -> float:
    """Confine a displaced weight as a run does after each step, in both modes."""
    names = ("conv", "linear")
    start = {name: v[f"{name}_weight"] for name in names}
    moved = {name: start[name] + v[f"{name}_displacement"] for name in names}
    worst = 0.0
    for mode, suffix in MODES:
        anchor = Anchor.at(start, dict.fromkeys(names, 0), mode)
        inside = anchor.confine(moved)
        for name in names:
            worst = max(worst, _apart(inside[name] - start[name], v[f"{name}_{suffix}"]))
    return worst


def craft_error(v: Vectors) -> float:
    """Aggregate as a relay does, round after round, and compare the steps of every layer."""
    layers = sorted(name.removeprefix("updates_r0_") for name in v if name.startswith("updates_r0"))
    aggregator = Craft(CraftOptions(lr=1.0))
    start = Start(
        {f"{layer}.weight": torch.zeros_like(v[f"aggregate_r0_{layer}"]) for layer in layers}
    )
    state, worst, round_no = aggregator.init(start), 0.0, 0
    while f"updates_r{round_no}_{layers[0]}" in v:
        contributions = [
            _contribution(
                f"p{i:03d}",
                {
                    f"{q}.weight": start.params[f"{q}.weight"] - v[f"updates_r{round_no}_{q}"][i]
                    for q in layers
                },
                num_examples=int(count),
            )
            for i, count in enumerate(v["num_examples"])
        ]
        roster = [contribution.sender for contribution in contributions]
        made, state = aggregator.aggregate(state, start, contributions, roster)
        for layer in layers:
            name = f"{layer}.weight"
            step = start.params[name] - made.start.params[name]
            worst = max(worst, _apart(step, v[f"aggregate_r{round_no}_{layer}"]))
        start, round_no = made.start, round_no + 1
    return worst


CHECKS: Mapping[str, Callable[[Vectors], float]] = {
    "craft": craft_error,
    "fedc2i": fedc2i_error,
    "fedconst": fedconst_error,
}


def errors(folder: Path) -> dict[str, float]:
    """Largest absolute error of each method whose file is in `folder`."""
    found: dict[str, float] = {}
    for name, check in CHECKS.items():
        file = folder / f"{name}.npz"
        if file.is_file():
            with np.load(file, allow_pickle=False) as arrays:
                found[name] = check({key: torch.from_numpy(arrays[key]) for key in arrays.files})
    return found


def _contribution(sender: str, params: Params, num_examples: int = 1) -> Contribution:
    trained = Trained(params=params, num_examples=num_examples, num_steps=1)
    return Contribution(sender=PeerId(sender), round_no=1, base=b"", degree=0, trained=trained)


def _apart(found: object, expected: Tensor) -> float:
    apart = (torch.as_tensor(found, dtype=torch.float64) - expected).abs()
    return float(apart.nan_to_num(nan=torch.inf).max())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.vectors DIR")
    sys.stdout.write(json.dumps(errors(Path(sys.argv[1]))) + "\n")

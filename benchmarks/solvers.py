"""What each solver costs beside a plain loop of torch.optim: one JSON line.

    python benchmarks/solvers.py [--repetitions 15] [--steps 8] [SOLVER ...]        half a minute

lenet5, batch size 32, one thread, CPU. Before every solver's round of one pass, with its defaults,
the plain loop (a module, SGD) trains over the same batches: what disturbs the machine disturbs
both. `ratio` is the median over the repetitions of a solver's time by that of the plain loop just
before it; times are those that the process computed for. Some methods take more than SGD's one
forward and backward pass over each batch by their definition, and `passes` says how many: FedRep
trains the classifier alone ten times first.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.examples import Examples
from peer.methods import SOLVERS, make_method
from peer.models.registry import build_model
from peer.models.split import SplitModel
from peer.options.recipe import PRESETS, expand
from peer.solvers.base import Solver, Task

BATCH_SIZE, LR = 32, 0.05
SHAPE, CLASSES = (3, 28, 28), 10
PASSES = {"ditto": 2, "fedsam": 2, "fedalign": 2, "moon": 3, "fedrep": 11}  # of SGD's one


def examples(steps: int) -> Examples:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn((steps * BATCH_SIZE, *SHAPE), generator=draw)
    return Examples(inputs, torch.randint(CLASSES, (len(inputs),), generator=draw))


def plain(model: SplitModel, data: Examples) -> Callable[[], None]:
    """The loop that anybody would write."""
    module = model.module.to_empty(device="cpu")
    module.load_state_dict({**model.start.params, **model.start.buffers})
    optimiser = torch.optim.SGD(module.parameters(), lr=LR)

    def run() -> None:
        module.train()
        for inputs, targets in data.shuffled(BATCH_SIZE, 0):
            optimiser.zero_grad()
            loss: Tensor = F.cross_entropy(module(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call] # torch's own
            optimiser.step()

    return run


def of_solver(name: str, raw: SplitModel, data: Examples) -> Callable[[], None]:
    preset = next((p for p, parts in PRESETS.items() if parts["solver"] == name), "local")
    method = make_method(expand(preset, {}))
    solver: Solver = method.solver
    model = solver.adapt(raw)
    task: Task = method.task(model, data)
    state = solver.init(model.start)

    def run() -> None:
        solver.train(state, model.start, task, 0, lambda _done, _planned: None)

    return run


def seconds(run: Callable[[], None]) -> float:
    """Of this process's one thread: what else the machine does is not in it."""
    began_s = time.process_time()
    run()
    return time.process_time() - began_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("solvers", nargs="*", metavar="SOLVER", help="[all]")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--steps", type=int, default=8, help="batches of one pass")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = examples(asked.steps)
    built = [build_model("lenet5", SHAPE, CLASSES, "group", 0) for _ in range(2)]
    bare = plain(built[0], data)
    runs = {name: of_solver(name, built[1], data) for name in asked.solvers or sorted(SOLVERS)}
    for run in (bare, *runs.values()):
        run()  # warm: the first pass allocates
    plains: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(asked.repetitions):
        for name, run in runs.items():
            plains.append(seconds(bare))
            ratios[name].append(seconds(run) / plains[-1])
    line = {
        "plain_ms": round(1e3 * median(plains) / asked.steps, 3),
        "ratio": {name: round(median(found), 3) for name, found in ratios.items()},
        "passes": {name: PASSES.get(name, 1) for name in runs},
        "repetitions": asked.repetitions,
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())

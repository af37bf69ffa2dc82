"""Three peers with a tiny model in float64, who play rounds as trainers do; and how a twin sees it.

A batch is all of a peer's examples, so that twins need no order. Peers own two classes of three.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from peer.examples import Examples
from peer.methods import Method, make_method
from peer.models.describe import describe
from peer.models.split import SplitModel
from peer.options.fields import Value
from peer.options.recipe import expand
from peer.seeding import forked
from peer.task import LocalTask
from protocol.ids import PeerId
from protocol.params import Params, State
from protocol.round import Contribution, Mixed, Start, Trained
from tests.unit.methods.making import silent

OWNED = {"a": (0, 1, 1, 0, 1), "b": (1, 2, 2, 1, 1, 2, 1), "c": (0, 2, 0)}  # labels of each peer
CLASSES, WIDTH = 3, 4
A, B, C = (PeerId(name) for name in OWNED)


def tiny_model(*, bias: bool = True) -> SplitModel:
    """A layer with tanh, and a classifier."""
    with forked(5):
        body = nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())
        net = nn.Sequential(OrderedDict(body=body, head=nn.Linear(WIDTH, CLASSES, bias=bias)))
    return describe("tiny", net, (5,), CLASSES).to(torch.device("cpu"), torch.float64)


def examples(name: str) -> Examples:
    chance = torch.Generator().manual_seed(ord(name))
    targets = torch.tensor(OWNED[name])
    inputs = torch.randn(len(targets), 5, generator=chance, dtype=torch.float64)
    return Examples(inputs + targets.unsqueeze(1), targets)


@dataclass
class Peer:
    task: LocalTask
    start: Start
    trained: Trained
    mixer_state: State
    solver_state: State
    mixed: Mixed | None = None


@dataclass
class Hamlet:
    """All peers, after as many rounds as were played."""

    method: Method
    model: SplitModel
    names: Sequence[PeerId] = (A, B, C)
    peers: dict[PeerId, Peer] = field(init=False)

    def __post_init__(self) -> None:
        self.peers = {}
        for name in self.names:
            task = self.method.task(self.model, examples(name))
            opening = replace(
                self.method.opening(self.model),
                num_examples=task.num_examples,
                class_counts=task.class_counts,
            )
            start = self.model.start
            self.peers[name] = Peer(
                task,
                start,
                opening,
                self.method.mixer.init(start),
                self.method.solver.init(start),
            )

    def sent(self, name: PeerId, trained: Trained) -> Contribution:
        degree = len(self.names) - 1
        return Contribution(sender=name, round_no=1, base=b"", degree=degree, trained=trained)

    def play(self, rounds: int = 3) -> "Hamlet":
        """Mix, train, and again; in the first round nobody has anything to mix with."""
        for round_no in range(1, rounds + 1):
            shared = {
                name: self.method.mixer.share(peer.trained, self.model.head)
                for name, peer in self.peers.items()
            }
            for name, peer in self.peers.items():
                others = [
                    self.sent(other, trained)
                    for other, trained in shared.items()
                    if trained is not None and other != name and round_no > 1
                ]
                probe = self.method.probe(peer.task, peer.trained.buffers, 0)
                own = self.sent(name, peer.trained)
                peer.mixed, peer.mixer_state = self.method.mixer.mix(
                    peer.mixer_state, own, others, probe
                )
                peer.start = peer.mixed.start
            for peer in self.peers.values():
                peer.trained, peer.solver_state = self.method.train(
                    peer.solver_state, peer.start, peer.task, 0, silent
                )
        return self


def hamlet(preset: str, **options: Value) -> Hamlet:
    """A hamlet with whole batches; option names with `__` for the point."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    method = make_method(expand(preset, {"train.batch_size": 100, "solver.lr": 0.3, **given}))
    return Hamlet(method, method.solver.adapt(tiny_model()))


# -- what a twin needs: the model on paper --------------------------------------------------------

NAMES = ("body.0.weight", "body.0.bias", "head.weight", "head.bias")
BODY, HEAD = NAMES[:2], NAMES[2:]


def initial() -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tiny_model().start.params.items()}


def features(params: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    return torch.tanh(inputs @ params["body.0.weight"].T + params["body.0.bias"])


def scores(params: Mapping[str, Tensor], z: Tensor) -> Tensor:
    return z @ params["head.weight"].T + params["head.bias"]


def loss(params: Mapping[str, Tensor], data: Examples) -> Tensor:
    return F.cross_entropy(scores(params, features(params, data.inputs)), data.targets)


def leaf(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in params.items()}


def step(
    params: Mapping[str, Tensor], value: Tensor, names: Sequence[str], lr: float = 0.3
) -> dict[str, Tensor]:
    """Go down `value`, which was computed from these leaves, along the tensors named."""
    grads = torch.autograd.grad(value, [params[name] for name in names])
    moved = {n: params[n] - lr * g for n, g in zip(names, grads, strict=True)}
    return {name: moved.get(name, tensor).detach() for name, tensor in params.items()}


def mean(points: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    return sum((w * p for w, p in zip(weights, points, strict=True)), torch.zeros(())) / sum(
        weights
    )


def assert_equal(found: Params, expected: Mapping[str, Tensor]) -> None:
    """To 1e-9, whatever the order of the sums."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0.0, atol=1e-9)

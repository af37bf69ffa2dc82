"""FedIC (reconstruction): prototypes and rows of the classifier, shared among those who agree."""

from collections.abc import Sequence
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.mixers.fedic import FedIC, row_weights
from peer.options.mixers import FedICOptions
from peer.prototypes import Prototypes
from protocol.params import NO_STATE
from protocol.round import Contribution, Mixed
from tests.unit.families.hamlet import (
    HEAD,
    NAMES,
    OWNED,
    A,
    B,
    C,
    assert_equal,
    examples,
    features,
    hamlet,
    initial,
    leaf,
    mean,
    scores,
    step,
)
from tests.unit.families.test_linkage import naive as naive_clusters
from tests.unit.methods.making import contribution, linear_point, linear_probe

CUT = 0.3


def least_on_simplex(form: Tensor) -> Tensor:
    """Try every set of peers that weigh anything; keep the best that is feasible."""
    best, lowest = torch.zeros(len(form)).double(), float("inf")
    for size in range(1, len(form) + 1):
        for chosen in map(list, combinations(range(len(form)), size)):
            x = torch.linalg.solve(form[chosen][:, chosen], torch.ones(size).double())
            x = x / x.sum()
            value = float(x @ form[chosen][:, chosen] @ x)
            if bool((x >= 0.0).all()) and value < lowest:
                best, lowest = torch.zeros(len(form)).double(), value
                best[chosen] = x
    return best


def weights_of(z: Sequence[Tensor], sizes: Sequence[int], me: int) -> Tensor:
    """Of one class: `z` are its examples' features of each peer in the cluster."""
    parts = [len(features) / n for features, n in zip(z, sizes, strict=True)]
    centres = [p * features.mean(dim=0) for p, features in zip(parts, z, strict=True)]
    form = torch.zeros(len(z), len(z)).double()
    for j in range(len(z)):
        for k in range(len(z)):
            form[j, k] = (centres[me] - centres[j]) @ (centres[me] - centres[k])
        spread = parts[j] * z[j].square().sum(dim=1).mean() - centres[j] @ centres[j]
        form[j, j] += spread / sizes[j]
    return least_on_simplex(form)


def distances(points: Sequence[Tensor]) -> Tensor:
    return torch.stack(
        [torch.stack([1.0 - p @ q / (p.norm() * q.norm()) for q in points]) for p in points]
    )


Targets = dict[tuple[str, int], Tensor]  # by peer and class
Twins = dict[str, dict[str, Tensor]]  # parameters by peer
TWIN_CUT = 0.2


def train(name: str, start: dict[str, Tensor], targets: Targets) -> dict[str, Tensor]:
    data, w = examples(name), start
    for _ in range(2):
        w = leaf(w)
        z = features(w, data.inputs)
        value = F.cross_entropy(scores(w, z), data.targets)
        for i, label in enumerate(OWNED[name]):
            if (name, label) in targets:
                value = value + 0.7 * (z[i] - targets[name, label]).square().sum() / z.numel()
        w = step(w, value, NAMES)
    return w


def exchange(ends: Twins) -> tuple[Twins, Targets, set[int]]:
    """The next starts and targets, and how large the clusters were."""
    sizes = {name: len(labels) for name, labels in OWNED.items()}
    by_samples = [float(size) for size in sizes.values()]
    common = {n: mean([ends[name][n] for name in OWNED], by_samples) for n in NAMES}
    starts = {name: {n: t.clone() for n, t in common.items()} for name in OWNED}
    targets: Targets = {}
    seen = set()
    for label in range(3):
        owners = [name for name in OWNED if label in OWNED[name]]
        z = {}
        for name in owners:
            data = examples(name)
            z[name] = features(ends[name], data.inputs)[data.targets == label]
        prototypes = [z[name].mean(dim=0) for name in owners]
        for cluster in naive_clusters(distances(prototypes), TWIN_CUT):
            members = [owners[i] for i in cluster]
            seen.add(len(members))
            for me, name in enumerate(members):
                targets[name, label] = torch.stack([prototypes[i] for i in cluster]).mean(dim=0)
                weights = weights_of([z[m] for m in members], [sizes[m] for m in members], me)
                for n in HEAD:
                    rows = [ends[m][n][label] for m in members]
                    starts[name][n][label] = mean(rows, weights.tolist())
    return starts, targets, seen


def test_three_rounds_are_those_of_a_naive_twin() -> None:
    played = hamlet("fedic", solver__epochs=2, solver__pull=0.7, mixer__cut=TWIN_CUT).play()

    starts: Twins = {name: initial() for name in OWNED}
    targets: Targets = {}
    for _ in range(2):
        ends = {name: train(name, starts[name], targets) for name in OWNED}
        starts, targets, sizes_of_clusters = exchange(ends)
        assert sizes_of_clusters == {1, 2}  # some agree, some do not

    for name, peer in played.peers.items():
        assert_equal(peer.trained.params, train(name, starts[name], targets))


def says(
    sender: str, means: list[list[float]], counts: list[int], *, samples: int = 1
) -> Contribution:
    told = Prototypes(
        torch.tensor(means), torch.tensor(counts), torch.tensor(means).square().sum(dim=1)
    )
    point = linear_point(ord(sender), torch.float32, classes=len(counts))
    extras = told.extras(squares=True)
    return contribution(sender, point, extras=extras, num_examples=samples, class_counts=counts)


def mix(own: Contribution, *others: Contribution, cut: float = CUT) -> Mixed:
    probe = linear_probe(classes=len(own.trained.class_counts))
    mixed, _ = FedIC(FedICOptions(cut=cut)).mix(NO_STATE, own, others, probe)
    return mixed


def three() -> list[Contribution]:
    """Of class 0, a and b agree and c does not; class 1 is b's alone."""
    return [
        says("a", [[1.0, 0.0], [0.0, 0.0]], [4, 0], samples=4),
        says("b", [[0.9, 0.1], [0.0, 1.0]], [2, 2], samples=4),
        says("c", [[-1.0, 0.0], [0.0, 0.0]], [4, 0], samples=8),
    ]


def test_features_are_pulled_to_the_mean_of_the_own_cluster() -> None:
    a, b, c = three()
    start = mix(a, b, c).start
    torch.testing.assert_close(start.extras["prototypes"][0], torch.tensor([0.95, 0.05]))
    assert start.extras["counts"].tolist() == [2, 0]
    assert mix(c, a, b).start.extras["prototypes"].tolist() == [[-1.0, 0.0], [0.0, 0.0]]


def test_bodies_and_rows_of_classes_that_a_peer_does_not_have_are_averaged_by_samples() -> None:
    a, b, c = three()
    mixed = mix(a, b, c)
    assert mixed.client_weight == {A: 0.25, B: 0.25, C: 0.5}
    assert [mixed.class_weight[peer][1] for peer in (A, B, C)] == [0.25, 0.25, 0.5]
    assert mixed.class_weight[C][0] == 0.0  # in another cluster
    assert sum(rows[0] for rows in mixed.class_weight.values()) == pytest.approx(1.0)
    assert mixed.notes == {"mean_cluster_size": 2.0}


def test_alone_in_its_cluster_a_peer_keeps_its_row() -> None:
    a, b, c = three()
    mixed = mix(c, a, b)
    assert torch.equal(mixed.start.params["head.weight"][0], c.trained.params["head.weight"][0])
    assert mixed.class_weight[C][0] == 1.0


@pytest.mark.parametrize("seed", range(6))
def test_rows_weigh_what_brute_force_finds(seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    z = [torch.randn(n, 3, generator=chance).double() + 1.0 for n in (2, 5, 9, 4)]
    sizes = [6, 5, 12, 8]
    told = [
        Prototypes(
            torch.stack([x.mean(dim=0), torch.zeros(3).double()]),
            torch.tensor([len(x), size - len(x)]),
            torch.stack([x.square().sum(dim=1).mean(), torch.zeros(()).double()]),
        )
        for x, size in zip(z, sizes, strict=True)
    ]
    everyone = torch.ones(4, dtype=torch.bool)
    for me in range(4):
        found = row_weights(told, me, 0, everyone, torch.ones(4).double())
        torch.testing.assert_close(found, weights_of(z, sizes, me), rtol=0, atol=1e-9)
    half = torch.tensor([1.0, 0.5, 1.0, 1.0]).double()
    fresh = weights_of(z, sizes, 0) * half
    found = row_weights(told, 0, 0, everyone, half)
    torch.testing.assert_close(found, fresh / fresh.sum(), rtol=0, atol=1e-9)


def test_peers_between_which_nothing_decides_weigh_the_same() -> None:
    """All features are zero: there is neither bias nor variance."""
    nothing = Prototypes(torch.zeros(1, 2), torch.tensor([3]), torch.zeros(1))
    found = row_weights(
        [nothing] * 3, 0, 0, torch.tensor([True, True, True]), torch.ones(3).double()
    )
    torch.testing.assert_close(found, torch.full((3,), 1 / 3).double())


def test_nobody_with_examples_leaves_everything_to_the_mean() -> None:
    a, b = says("a", [[0.0, 0.0]] * 2, [0, 0]), says("b", [[0.0, 0.0]] * 2, [0, 0], samples=3)
    mixed = mix(a, b)
    assert mixed.notes == {"mean_cluster_size": 0.0}
    assert mixed.start.extras["counts"].tolist() == [0, 0]
    assert mixed.class_weight == {A: (0.25, 0.25), B: (0.75, 0.75)}


def test_counts_that_nobody_can_have_spoil_nothing() -> None:
    a, liar = says("a", [[1.0, 0.0]] * 2, [1, 1]), says("b", [[1.0, 0.1]] * 2, [3, -(2**62)])
    start = mix(a, liar).start
    assert all(bool(t.isfinite().all()) for t in start.params.values())
    assert start.extras["counts"].tolist() == [2, 1]

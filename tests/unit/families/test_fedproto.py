"""FedProto: models of one's own, drawn together by common prototypes."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from peer.mixers.fedproto import FedProto
from peer.prototypes import Prototypes
from peer.solvers.fedproto import FedProtoSolver
from protocol.errors import LayoutError
from protocol.ids import PeerId
from protocol.params import NO_STATE, Params
from protocol.round import Contribution
from tests.unit.families.hamlet import (
    NAMES,
    OWNED,
    assert_equal,
    examples,
    features,
    hamlet,
    initial,
    leaf,
    scores,
    step,
    tiny_model,
)
from tests.unit.methods.making import contribution, linear_point, linear_probe, silent


def test_three_rounds_are_those_of_a_naive_twin() -> None:
    played = hamlet("fedproto", solver__epochs=2, solver__pull=0.7).play()

    weights = {name: initial() for name in OWNED}
    common: dict[int, torch.Tensor] = {}
    prototypes: dict[tuple[str, int], torch.Tensor] = {}
    for _ in range(3):
        for name, labels in OWNED.items():
            data = examples(name)
            for _ in range(2):
                w = leaf(weights[name])
                z = features(w, data.inputs)
                value = F.cross_entropy(scores(w, z), data.targets)
                gaps = [
                    (z[i] - common[label]).square().sum()
                    for i, label in enumerate(labels)
                    if label in common
                ]
                value = value + 0.7 * sum(gaps, torch.zeros(())) / z.numel()
                weights[name] = step(w, value, NAMES)
            z = features(weights[name], data.inputs)
            for label in set(labels):
                members = [z[i] for i, other in enumerate(labels) if other == label]
                prototypes[name, label] = torch.stack(members).mean(dim=0)
        for label in range(3):
            said = [prototypes[name, label] for name in OWNED if label in OWNED[name]]
            common[label] = torch.stack(said).mean(dim=0)

    for name, peer in played.peers.items():
        assert_equal(peer.trained.params, weights[name])
        for label in set(OWNED[name]):
            torch.testing.assert_close(
                peer.trained.extras["prototypes"][label],
                prototypes[name, label],
                rtol=0.0,
                atol=1e-9,
            )


def says(sender: str, means: list[list[float]], counts: list[int], **more: float) -> Contribution:
    told = Prototypes(torch.tensor(means), torch.tensor(counts), torch.zeros(len(counts)))
    return contribution(sender, linear_point(0), extras=told.extras(), **more)  # type: ignore[arg-type]  # freshness


def common_of(*contributions: Contribution) -> Params:
    own, *others = contributions
    mixed, _ = FedProto().mix(NO_STATE, own, others, linear_probe())
    assert mixed.start.params is own.trained.params
    assert mixed.client_weight == {own.sender: 1.0}
    return mixed.start.extras


def test_a_prototype_is_the_mean_over_its_owners_whatever_their_samples() -> None:
    common = common_of(
        says("a", [[2.0], [9.0], [0.0]], [1, 0, 0]), says("b", [[4.0], [6.0], [0.0]], [100, 1, 0])
    )
    assert common["prototypes"].tolist() == [[3.0], [6.0], [0.0]]
    assert common["counts"].tolist() == [2, 1, 0]


def test_a_half_fresh_owner_counts_half() -> None:
    common = common_of(says("a", [[2.0]], [1]), says("b", [[5.0]], [1], freshness=0.5))
    assert common["prototypes"].tolist() == [[3.0]]  # (2 + 0.5 * 5) / 1.5


def test_a_count_below_zero_is_none() -> None:
    assert common_of(says("a", [[2.0]], [1]), says("b", [[5.0]], [-3]))["counts"].tolist() == [1]


def test_no_parameter_and_no_buffer_leaves() -> None:
    trained = says("a", [[1.0]], [1]).trained
    shared = FedProto().share(trained, linear_probe().head)
    assert shared is not None
    assert (dict(shared.params), dict(shared.buffers)) == ({}, {})
    assert list(shared.extras) == ["prototypes", "counts"]


def test_a_class_of_nobody_is_noted() -> None:
    own = says("a", [[1.0], [0.0]], [1, 0])
    mixed, _ = FedProto().mix(NO_STATE, own, [], linear_probe())
    assert mixed.notes == {"classes_without_prototype": 1.0}


def test_extras_without_prototypes_are_told() -> None:
    own = contribution("a", linear_point(0))
    with pytest.raises(LayoutError, match="without a tensor"):
        FedProto().mix(NO_STATE, own, [], linear_probe())


def test_without_targets_it_is_sgd() -> None:
    plain = hamlet("local").play(1).peers[PeerId("a")].trained
    start = tiny_model().start  # as a late joiner has it: without extras
    task = hamlet("local").peers[PeerId("a")].task
    solver = hamlet("fedproto").method.solver
    assert isinstance(solver, FedProtoSolver)
    trained, _ = solver.train(NO_STATE, start, task, 0, silent)
    assert_equal(trained.params, plain.params)


def test_without_pull_it_is_sgd_on_the_own_data_alone() -> None:
    alone, together = hamlet("local").play(), hamlet("fedproto", solver__pull=0.0).play()
    for name, peer in together.peers.items():
        assert_equal(peer.trained.params, alone.peers[name].trained.params)

"""Gossip, local and FedC2I by hand."""

import pytest
import torch

from peer.mixers.fedavg import FedAvg
from peer.mixers.fedc2i import FedC2I
from peer.mixers.local import Local
from peer.options.methods import FedC2IOptions
from protocol.ids import PeerId
from protocol.params import NO_STATE, Params
from protocol.round import Contribution, Mixed
from tests.unit.methods.making import contribution, linear_point, linear_probe

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")


def mixed_by(options: FedC2IOptions, own: Contribution, *others: Contribution) -> Mixed:
    mixed, _ = FedC2I(options).mix(NO_STATE, own, others, linear_probe())
    return mixed


def three(class_counts: tuple[int, ...] = ()) -> list[Contribution]:
    return [
        contribution("b", linear_point(1), class_counts=class_counts),
        contribution("a", linear_point(0)),
        contribution("c", linear_point(2)),
    ]


def test_gossip_weighs_by_training_samples() -> None:
    own = contribution("b", {"w": torch.tensor([0.0])}, num_examples=1)
    other = contribution("a", {"w": torch.tensor([4.0])}, num_examples=3)
    mixed, _ = FedAvg().mix(NO_STATE, own, [other], linear_probe())
    assert mixed.start.params["w"].item() == 3.0  # (1 * 0 + 3 * 4) / 4
    assert mixed.client_weight == {A: 0.75, B: 0.25}


def test_gossip_halves_the_samples_of_a_half_fresh_neighbour() -> None:
    own = contribution("a", {"w": torch.tensor([0.0])}, num_examples=3)
    stale = contribution("b", {"w": torch.tensor([4.0])}, num_examples=2, freshness=0.5)
    mixed, _ = FedAvg().mix(NO_STATE, own, [stale], linear_probe())
    assert mixed.client_weight == {A: 0.75, B: 0.25}


def test_local_sends_nothing_and_keeps_its_own() -> None:
    own = contribution("a", linear_point(0))
    assert Local().share(own.trained, linear_probe().head) is None
    mixed, _ = Local().mix(NO_STATE, own, [], linear_probe())
    assert mixed.start.params is own.trained.params
    assert mixed.client_weight == {A: 1.0}


def test_gamma_zero_is_the_uniform_mean() -> None:
    mixed = mixed_by(FedC2IOptions(gamma=0.0), *three())
    for name, tensor in mixed.start.params.items():
        expected = torch.stack([linear_point(seed)[name] for seed in range(3)]).mean(dim=0)
        torch.testing.assert_close(tensor, expected)
    assert list(mixed.client_weight.values()) == pytest.approx([1 / 3] * 3)


def test_equal_models_weigh_the_same() -> None:
    same: Params = linear_point(0)
    mixed = mixed_by(FedC2IOptions(), *(contribution(s, same) for s in "cab"))
    assert list(mixed.client_weight) == [A, B, C]
    assert list(mixed.client_weight.values()) == pytest.approx([1 / 3] * 3, abs=1e-15)


def test_body_and_rows_are_sums_by_their_own_weights() -> None:
    mixed = mixed_by(FedC2IOptions(), *three())
    points = {A: linear_point(0), B: linear_point(1), C: linear_point(2)}
    body = sum(mixed.client_weight[s] * points[s]["body.scale"] for s in points)
    torch.testing.assert_close(mixed.start.params["body.scale"], torch.as_tensor(body))
    for row in range(4):
        assert sum(mixed.class_weight[s][row] for s in points) == pytest.approx(1.0, abs=1e-14)
        bias = sum(mixed.class_weight[s][row] * points[s]["head.bias"][row].item() for s in points)
        assert mixed.start.params["head.bias"][row].item() == pytest.approx(bias)


def test_who_is_missed_most_weighs_most() -> None:
    mixed = mixed_by(FedC2IOptions(), *three())
    by_loss = sorted(mixed.client_loss, key=lambda sender: mixed.client_loss[sender])
    assert by_loss == sorted(mixed.client_weight, key=lambda sender: mixed.client_weight[sender])


def test_level_client_weighs_the_rows_like_the_body() -> None:
    mixed = mixed_by(FedC2IOptions(level="client"), *three())
    assert all(set(rows) == {mixed.client_weight[s]} for s, rows in mixed.class_weight.items())


def test_level_class_takes_the_uniform_mean_of_the_body() -> None:
    mixed = mixed_by(FedC2IOptions(level="class"), *three())
    both = mixed_by(FedC2IOptions(), *three())
    assert list(mixed.client_weight.values()) == pytest.approx([1 / 3] * 3)
    assert mixed.client_loss == {}
    assert mixed.class_weight == both.class_weight


def test_rows_of_classes_not_owned_take_the_clients_weights_if_asked_to() -> None:
    owned = three(class_counts=(5, 0, 5, 5))
    by_formula = mixed_by(FedC2IOptions(), *owned)
    by_client = mixed_by(FedC2IOptions(absent="client"), *owned)
    for sender, rows in by_client.class_weight.items():
        assert rows[1] == by_client.client_weight[sender]
        assert rows[0] == by_formula.class_weight[sender][0]


def test_without_itself_a_peer_starts_from_its_neighbours_alone() -> None:
    mixed = mixed_by(FedC2IOptions(include_self=False), *three())
    assert sorted(mixed.client_weight) == [A, C]
    alone = mixed_by(FedC2IOptions(include_self=False), three()[0])
    assert alone.client_weight == {B: 1.0}


def test_a_class_that_is_absent_from_the_batch_is_noted_and_weighed_all_the_same() -> None:
    probe = linear_probe(size=2)
    absent = 4 - len(set(probe.targets().tolist()))
    own, *others = three()
    mixed, _ = FedC2I().mix(NO_STATE, own, others, probe)
    assert mixed.notes["absent_classes"] == absent > 0
    assert all(0.0 < weight < 1.0 for rows in mixed.class_weight.values() for weight in rows)


def test_a_stale_neighbour_loses_weight_in_body_and_rows() -> None:
    own, other, last = three()
    stale = contribution("c", last.trained.params, freshness=0.5)
    fresh, aged = (
        mixed_by(FedC2IOptions(), own, other, last),
        mixed_by(FedC2IOptions(), own, other, stale),
    )
    odds = aged.client_weight[C] / aged.client_weight[A]
    assert odds == pytest.approx(0.5 * fresh.client_weight[C] / fresh.client_weight[A])
    odds = aged.class_weight[C][2] / aged.class_weight[A][2]
    assert odds == pytest.approx(0.5 * fresh.class_weight[C][2] / fresh.class_weight[A][2])

"""What every mixer promises: the contract of peer/mixers/base.py, as a class of tests.

A subclass gives `mixer`; it is wrapped as in a run.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from peer.mixers.base import Head, Mixer
from peer.prototypes import Prototypes
from protocol.params import Params, State
from protocol.round import Contribution, Start
from tests.unit.methods.making import contribution, linear_point, linear_probe

SENDERS = "abcd"


class BrokenProbe:
    """Every loss is lost, and features are beyond all bounds."""

    head = Head("head.weight", "head.bias")
    num_batches = 1

    def targets(self, batch: int = 0) -> Tensor:
        return torch.tensor([0, 1])

    def loss(self, params: Params, batch: int = 0) -> float:
        return math.nan

    def features(self, params: Params, batch: int = 0) -> Tensor:
        return torch.full((2, 3), math.inf)


def features(seed: int, dtype: torch.dtype) -> Params:
    """What a peer says of its features: of four classes, the second of which it does not have."""
    counts = torch.tensor([1, 0, 2, seed])
    means = linear_point(seed + 10, dtype)["head.weight"] * (counts > 0).unsqueeze(1)
    squares = 1.5 * means.float().square().sum(dim=1)
    return Prototypes(means, counts, squares).extras(squares=True)


def peers(dtype: torch.dtype = torch.float32, *, equal: bool = False) -> list[Contribution]:
    """Four peers with different data; `equal`: and one model."""
    return [
        contribution(
            sender,
            linear_point(0 if equal else k, dtype),
            buffers={"mean": torch.tensor([float(0 if equal else k)], dtype=dtype)},
            extras=features(0 if equal else k, dtype),
            num_examples=k + 1,
            class_counts=(1, 0, 2, k),
        )
        for k, sender in enumerate(SENDERS)
    ]


def enlarged(tensor: Tensor) -> Tensor:
    return tensor * 1e37 if tensor.is_floating_point() else tensor


def copied(params: Params) -> Params:
    return {name: tensor.clone() for name, tensor in params.items()}


def assert_close(found: Params, expected: Params) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)


class MixerContract:
    mixer: Mixer

    def arrived(self, others: Sequence[Contribution]) -> list[Contribution]:
        """What of the others' results leaves them."""
        shared = [self.mixer.share(c.trained, linear_probe().head) for c in others]
        pairs = zip(others, shared, strict=True)
        return [replace(c, trained=trained) for c, trained in pairs if trained is not None]

    def mix(
        self, own: Contribution, others: Sequence[Contribution], state: State | None = None
    ) -> Start:
        before = self.mixer.init(Start(own.trained.params, own.trained.buffers))
        arrived = self.arrived(others)
        mixed, _ = self.mixer.mix(before if state is None else state, own, arrived, linear_probe())
        assert math.isclose(sum(mixed.client_weight.values()), 1.0)
        assert all(weight >= 0.0 for weight in mixed.client_weight.values())
        return mixed.start

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
    def test_equal_points_stay_put(self, dtype: torch.dtype) -> None:
        own, *others = peers(dtype, equal=True)
        start = self.mix(own, others)
        assert_close(start.params, own.trained.params)
        assert_close(start.buffers, own.trained.buffers)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
    def test_the_layout_is_kept(self, dtype: torch.dtype) -> None:
        own, *others = peers(dtype)
        start = self.mix(own, others)
        for found, expected in (
            (start.params, own.trained.params),
            (start.buffers, own.trained.buffers),
        ):
            assert list(found) == list(expected)
            for name, tensor in expected.items():
                assert (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
                assert not found[name].requires_grad

    def test_one_peer_alone_keeps_its_own(self) -> None:
        own = peers()[0]
        start = self.mix(own, [])
        for name, tensor in own.trained.params.items():
            assert torch.equal(start.params[name], tensor)
        assert torch.equal(start.buffers["mean"], own.trained.buffers["mean"])

    def test_two_peers_are_enough(self) -> None:
        own, other, *_ = peers()
        assert list(self.mix(own, [other]).params) == list(own.trained.params)

    def test_what_it_is_given_is_not_written_to(self) -> None:
        own, *others = peers()
        given = [
            point
            for c in (own, *others)
            for point in (c.trained.params, c.trained.buffers, c.trained.extras)
        ]
        before = [copied(point) for point in given]
        self.mix(own, others)
        for point, copy in zip(given, before, strict=True):
            assert all(torch.equal(point[name], tensor) for name, tensor in copy.items())

    def test_equal_arguments_give_equal_results(self) -> None:
        own, *others = peers()
        one, same = self.mix(own, others), self.mix(own, others)
        assert all(torch.equal(t, same.params[n]) for n, t in one.params.items())

    def test_the_names_of_the_senders_matter_only_in_the_last_bits(self) -> None:
        own, *others = peers()
        renamed = [replace(c, sender=new) for c, new in zip((own, *others), "zyxw", strict=True)]  # type: ignore[arg-type]  # a name
        one = self.mix(own, others)
        same = self.mix(renamed[0], sorted(renamed[1:], key=lambda c: c.sender))
        assert_close(same.params, one.params)

    def test_its_state_survives_being_stored(self) -> None:
        own, *others = peers()
        state = self.mixer.init(Start(own.trained.params, own.trained.buffers))
        _, state = self.mixer.mix(state, own, self.arrived(others), linear_probe())
        stored = {name: copied(params) for name, params in state.items()}
        one, same = self.mix(own, others, state), self.mix(own, others, stored)
        assert all(torch.equal(t, same.params[n]) for n, t in one.params.items())

    def test_losses_that_are_not_finite_give_finite_weights(self) -> None:
        own, *others = peers()
        start = Start(own.trained.params, own.trained.buffers)
        mixed, _ = self.mixer.mix(self.mixer.init(start), own, self.arrived(others), BrokenProbe())
        assert math.isclose(sum(mixed.client_weight.values()), 1.0)
        assert all(bool(t.isfinite().all()) for t in mixed.start.params.values())

    def test_huge_points_do_not_overflow(self) -> None:
        own, *others = (
            replace(
                c,
                trained=replace(
                    c.trained,
                    params={n: t * 1e37 for n, t in c.trained.params.items()},
                    extras={n: enlarged(t) for n, t in c.trained.extras.items()},
                ),
            )
            for c in peers()
        )
        start = self.mix(own, others)
        for tensor in (*start.params.values(), *start.extras.values()):
            assert bool(tensor.isfinite().all())

    def test_what_it_gives_to_the_solver_has_one_layout_or_is_not_there(self) -> None:
        own, *others = peers()
        alone, among = self.mix(own, []).extras, self.mix(own, others).extras
        if alone:  # of a relay that is missing there is nothing, and solvers do without
            assert [(n, t.shape, t.dtype) for n, t in alone.items()] == [
                (n, t.shape, t.dtype) for n, t in among.items()
            ]

    def test_what_leaves_is_a_part_of_what_was_trained(self) -> None:
        trained = peers()[0].trained
        shared = self.mixer.share(trained, linear_probe().head)
        if shared is not None:
            assert shared.params.items() <= trained.params.items()
            assert shared.personal is None

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


def peers(dtype: torch.dtype = torch.float32, *, equal: bool = False) -> list[Contribution]:
    """Four peers with different data; `equal`: and one model."""
    return [
        contribution(
            sender,
            linear_point(0 if equal else k, dtype),
            buffers={"mean": torch.tensor([float(0 if equal else k)], dtype=dtype)},
            num_examples=k + 1,
            class_counts=(1, 0, 2, k),
        )
        for k, sender in enumerate(SENDERS)
    ]


def copied(params: Params) -> Params:
    return {name: tensor.clone() for name, tensor in params.items()}


def assert_close(found: Params, expected: Params) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)


class MixerContract:
    mixer: Mixer

    def mix(
        self, own: Contribution, others: Sequence[Contribution], state: State | None = None
    ) -> Start:
        before = self.mixer.init(Start(own.trained.params, own.trained.buffers))
        mixed, _ = self.mixer.mix(before if state is None else state, own, others, linear_probe())
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
        before = [(copied(c.trained.params), copied(c.trained.buffers)) for c in (own, *others)]
        self.mix(own, others)
        for c, (params, buffers) in zip((own, *others), before, strict=True):
            assert all(torch.equal(c.trained.params[n], t) for n, t in params.items())
            assert all(torch.equal(c.trained.buffers[n], t) for n, t in buffers.items())

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
        _, state = self.mixer.mix(state, own, others, linear_probe())
        stored = {name: copied(params) for name, params in state.items()}
        one, same = self.mix(own, others, state), self.mix(own, others, stored)
        assert all(torch.equal(t, same.params[n]) for n, t in one.params.items())

    def test_losses_that_are_not_finite_give_finite_weights(self) -> None:
        own, *others = peers()
        start = Start(own.trained.params, own.trained.buffers)
        mixed, _ = self.mixer.mix(self.mixer.init(start), own, others, BrokenProbe())
        assert math.isclose(sum(mixed.client_weight.values()), 1.0)
        assert all(bool(t.isfinite().all()) for t in mixed.start.params.values())

    def test_huge_points_do_not_overflow(self) -> None:
        own, *others = (
            replace(
                c,
                trained=replace(
                    c.trained, params={n: t * 1e37 for n, t in c.trained.params.items()}
                ),
            )
            for c in peers()
        )
        assert all(bool(t.isfinite().all()) for t in self.mix(own, others).params.values())

    def test_what_leaves_is_a_part_of_what_was_trained(self) -> None:
        trained = peers()[0].trained
        shared = self.mixer.share(trained, linear_probe().head)
        if shared is not None:
            assert shared.params.items() <= trained.params.items()
            assert shared.personal is None

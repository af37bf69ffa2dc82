"""The peer's half of a relay: start from its model, and without it from the own result."""

from dataclasses import replace

import torch

from peer.mixers.relay import Relay
from protocol.params import NO_STATE
from protocol.round import Contribution, Mixed
from tests.unit.methods.making import contribution, linear_point, linear_probe


def mixed(own: Contribution, *others: Contribution) -> Mixed:
    return Relay().mix(NO_STATE, own, others, linear_probe())[0]


def test_a_start_is_the_relays_model_with_what_it_sends_along() -> None:
    relay = contribution("relay", linear_point(1), buffers={"m": torch.ones(1)}, num_examples=9)
    relay = replace(relay, trained=replace(relay.trained, extras={"c": torch.ones(2)}))
    found = mixed(contribution("a", linear_point(0)), relay)
    for name, tensor in linear_point(1).items():
        assert torch.equal(found.start.params[name], tensor)
    assert torch.equal(found.start.buffers["m"], torch.ones(1))
    assert torch.equal(found.start.extras["c"], torch.ones(2))
    assert (found.client_weight, found.notes) == ({"relay": 1.0}, {})


def test_without_the_relay_a_round_is_local_and_what_was_sent_is_not_taken_back() -> None:
    own = contribution("a", linear_point(0))
    own = replace(own, trained=replace(own.trained, extras={"c": torch.ones(2)}))
    found = mixed(own)
    assert found.start.params is own.trained.params
    assert found.start.extras == {}
    assert (found.client_weight, found.notes) == ({"a": 1.0}, {"local_round": 1.0})


def test_round_one_starts_from_the_initial_model_and_is_no_local_round() -> None:
    found = mixed(replace(contribution("a", linear_point(0)), round_no=0))
    assert found.notes == {}

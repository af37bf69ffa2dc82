"""What every aggregator promises: the contract of peer/aggregators/base.py, as a class of tests.

A subclass gives `aggregator`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from peer.aggregators.base import Aggregator
from protocol.ids import PeerId
from protocol.params import Params, State
from protocol.round import Aggregated, Contribution, Start
from protocol.tensors import read_body, spec_body, write_body
from protocol.wire.layout import Layout
from tests.unit.aggregators.making import sent

SHAPES: Mapping[str, tuple[int, ...]] = {
    "body.0.weight": (4, 2, 3, 3),
    "body.1.weight": (4,),  # BatchNorm of the convolution
    "body.1.bias": (4,),
    "head.weight": (3, 16),
    "head.bias": (3,),
}
SENDERS = tuple(PeerId(name) for name in "abcd")
DTYPES = [torch.float32, torch.bfloat16, torch.float64]


def point(seed: int, dtype: torch.dtype = torch.float32, size: float = 1.0) -> Params:
    chance = torch.Generator().manual_seed(seed)
    return {
        name: (size * torch.randn(shape, generator=chance, dtype=torch.float64)).to(dtype)
        for name, shape in SHAPES.items()
    }


def statistics(k: int, dtype: torch.dtype = torch.float32) -> Params:
    """Running statistics, as BatchNorm keeps them."""
    mean = torch.full((4,), float(k), dtype=dtype)
    return {"body.1.running_mean": mean, "body.1.num_batches_tracked": torch.tensor(10 + k)}


def beginning(dtype: torch.dtype = torch.float32) -> Start:
    return Start(point(100, dtype), statistics(0, dtype))


def near(start: Start, seed: int, size: float = 0.1) -> Params:
    """A point near the start, in its dtypes."""
    apart = point(seed, torch.float64, size)
    return {n: (t.double() + apart[n]).to(t.dtype) for n, t in start.params.items()}


def peers(start: Start, round_no: int = 0, size: float = 0.1) -> list[Contribution]:
    """Four peers that trained different amounts of different data, one of them not at all."""
    dtype = start.params["head.bias"].dtype
    found = []
    for k, sender in enumerate(SENDERS):
        params = near(start, 10 * round_no + k, size) if k != 2 else start.params
        one = evidenced(sender, params, k, dtype)
        found.append(one)
    return found


def evidenced(sender: PeerId, params: Params, k: int, dtype: torch.dtype) -> Contribution:
    """A contribution with everything that some method asks for."""
    return sent(
        sender,
        params,
        buffers=statistics(k, dtype),
        extras=point(50 + k, dtype, 0.01),
        num_examples=5 * k + 3,
        num_steps=2 * k + 1,
        start_loss=0.5 + 0.3 * k,
        lr=0.05,
    )


def copied(params: Params) -> Params:
    return {name: tensor.clone() for name, tensor in params.items()}


def stored(state: State) -> State:
    """Written and read again, as checkpoints do it."""
    back = {}
    for section, params in state.items():
        specs = spec_body({"extras": params})
        body = bytearray(Layout.of(specs).body_bytes)
        write_body({"extras": params}, specs, memoryview(body))
        back[section] = read_body(specs, memoryview(body))["extras"]
    return back


def same(left: Params, right: Params) -> bool:
    return list(left) == list(right) and all(torch.equal(t, right[n]) for n, t in left.items())


def assert_same_layout(found: Params, expected: Params) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
        assert not found[name].requires_grad


def finite(params: Params) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in params.values())


class AggregatorContract:
    aggregator: Aggregator

    def step(
        self, start: Start, contributions: Sequence[Contribution], state: State | None = None
    ) -> tuple[Aggregated, State]:
        before = self.aggregator.init(start) if state is None else state
        made, after = self.aggregator.aggregate(before, start, contributions, SENDERS)
        numbers = [*made.notes.values(), *(v for g in made.groups.values() for v in g.values())]
        told = {"norm", "updates_used", "smallest_alignment", "in_conflict"}
        assert told <= set(made.notes)
        assert all(type(number) is float and math.isfinite(number) for number in numbers)
        return made, after

    def travelled(self, rounds: int, dtype: torch.dtype = torch.float32) -> tuple[Start, State]:
        start = beginning(dtype)
        state = self.aggregator.init(start)
        for round_no in range(rounds):
            made, state = self.step(start, peers(start, round_no), state)
            start = made.start
        return start, state

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_who_has_not_moved_leaves_the_start_where_it_is(self, dtype: torch.dtype) -> None:
        start = beginning(dtype)
        unmoved = [
            replace(c, trained=replace(c.trained, params=copied(start.params)))
            for c in peers(start)
        ]
        made, _ = self.step(start, unmoved)
        assert same(made.start.params, start.params)
        assert made.notes["norm"] == 0.0

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_the_layout_is_kept(self, dtype: torch.dtype) -> None:
        start, _ = self.travelled(2, dtype)
        assert_same_layout(start.params, beginning(dtype).params)
        assert_same_layout(start.buffers, beginning(dtype).buffers)
        assert finite(start.params)
        assert not same(start.params, beginning(dtype).params)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_buffers_are_averaged_by_samples_and_counters_keep_the_largest(
        self, dtype: torch.dtype
    ) -> None:
        start = beginning(dtype)
        made, _ = self.step(start, peers(start))
        # samples 3, 8, 13, 18 with means 0, 1, 2, 3: 88 / 42
        expected = torch.full((4,), 88 / 42, dtype=dtype)
        torch.testing.assert_close(made.start.buffers["body.1.running_mean"], expected)
        assert made.start.buffers["body.1.num_batches_tracked"].item() == 13

    def test_buffers_move_no_parameter(self) -> None:
        start = beginning()
        one, _ = self.step(start, peers(start))
        others = [
            replace(c, trained=replace(c.trained, buffers=statistics(1000))) for c in peers(start)
        ]
        two, _ = self.step(Start(start.params, statistics(-5)), others)
        assert same(one.start.params, two.start.params)

    def test_what_it_is_given_is_not_written_to(self) -> None:
        start, state = self.travelled(2)
        contributions = peers(start, 2)
        given = [start.params, start.buffers, *state.values()]
        for c in contributions:
            given += [c.trained.params, c.trained.buffers, c.trained.extras]
        before = [copied(params) for params in given]
        self.step(start, contributions, state)
        assert all(same(now, then) for now, then in zip(given, before, strict=True))

    def test_equal_arguments_give_equal_results(self) -> None:
        start, state = self.travelled(1)
        (one, after), (two, again) = (self.step(start, peers(start, 1), state) for _ in range(2))
        assert same(one.start.params, two.start.params)
        assert list(after) == list(again)
        assert all(same(after[section], again[section]) for section in after)

    def test_the_names_of_the_senders_matter_only_in_the_last_bits(self) -> None:
        start = beginning(torch.float64)
        contributions = peers(start)
        one, _ = self.step(start, contributions)
        renamed = [
            replace(c, sender=name) for c, name in zip(contributions, SENDERS[::-1], strict=True)
        ]
        two, _ = self.step(start, sorted(renamed, key=lambda c: c.sender))
        for name, tensor in one.start.params.items():
            torch.testing.assert_close(two.start.params[name], tensor, rtol=0.0, atol=1e-12)

    def test_its_state_survives_being_stored(self) -> None:
        start, state = self.travelled(2)
        back = stored(state)
        assert all(same(back[section], state[section]) for section in state)
        (one, after), (two, again) = (self.step(start, peers(start, 2), s) for s in (state, back))
        assert same(one.start.params, two.start.params)
        assert all(same(after[section], again[section]) for section in after)

    def test_its_state_is_exact_enough_whatever_the_parameters_are_in(self) -> None:
        _, state = self.travelled(1, torch.bfloat16)
        floats = [t for params in state.values() for t in params.values() if t.is_floating_point()]
        assert all(tensor.itemsize >= 4 for tensor in floats)

    def test_a_store_may_drop_sections_that_are_empty(self) -> None:
        start = beginning()
        state = {s: p for s, p in self.aggregator.init(start).items() if p}
        made, _ = self.step(start, peers(start), state)
        assert same(made.start.params, self.step(start, peers(start))[0].start.params)

    def test_one_peer_alone_moves_it(self) -> None:
        start = beginning()
        made, state = self.step(start, peers(start)[1:2])
        assert finite(made.start.params)
        assert not same(made.start.params, start.params)
        made, _ = self.step(made.start, peers(made.start, 1)[3:], state)
        assert finite(made.start.params)

    def test_peers_come_and_go(self) -> None:
        start = beginning()
        state = self.aggregator.init(start)
        for round_no, present in enumerate([(0, 1), (2, 3), (1,), (0, 1, 2, 3), (2,), (0, 3)]):
            everyone = peers(start, round_no)
            made, state = self.step(start, [everyone[k] for k in present], state)
            start = made.start
            assert finite(start.params)

    @pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
    def test_updates_of_any_size_give_finite_numbers(self, size: float) -> None:
        start = Start(
            {n: torch.zeros_like(t) for n, t in beginning().params.items()}, statistics(0)
        )
        made, state = self.step(start, peers(start, 0, size))
        assert finite(made.start.params)
        made, _ = self.step(start, peers(start, 1, size), state)
        assert finite(made.start.params)

    @pytest.mark.parametrize("scale", [1.0, -1.0, 1.0 + 1e-6, -1.0 - 1e-6, -2.0, 0.0])
    def test_parallel_updates_give_finite_numbers(self, scale: float) -> None:
        start = beginning(torch.float64)
        one = near(start, 3)
        other = {n: t + scale * (one[n] - t) for n, t in start.params.items()}
        contributions = [
            evidenced(SENDERS[k], params, k, torch.float64) for k, params in enumerate((one, other))
        ]
        made, state = self.step(start, contributions)
        assert finite(made.start.params)
        made, _ = self.step(start, contributions, state)
        assert finite(made.start.params)

    @pytest.mark.parametrize("losses", [(0.0, 0.0), (1e-300, 0.0), (1e300, 1.0), (2.0, 2.0)])
    def test_losses_of_any_size_give_finite_numbers(self, losses: tuple[float, float]) -> None:
        start = beginning()
        contributions = [
            replace(c, trained=replace(c.trained, start_loss=loss))
            for c, loss in zip(peers(start), losses, strict=False)
        ]
        made, _ = self.step(start, contributions)
        assert finite(made.start.params)

    def test_a_model_of_one_number_works(self) -> None:
        start = Start({"w": torch.tensor(1.0)})
        contributions = [
            sent(
                name,
                {"w": torch.tensor(value)},
                extras={"w": torch.tensor(0.0)},
                num_examples=k + 1,
                start_loss=1.0 + k,
            )
            for k, (name, value) in enumerate(zip(SENDERS, (0.5, 0.75, 2.0, 1.0), strict=True))
        ]
        made, _ = self.step(start, contributions)
        assert finite(made.start.params)
        assert made.start.params["w"].shape == ()

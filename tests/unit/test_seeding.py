"""Streams of chance: the same everywhere, apart from each other, and gone without a trace."""

import random

import numpy as np
import torch

from peer.seeding import EVERYONE, forked, seeded, stream_seed
from protocol.ids import PeerId

P0 = PeerId("p0")


def drawn() -> tuple[float, float, float]:
    return torch.rand(()).item(), float(np.random.rand()), random.random()  # noqa: NPY002, TID251


def test_a_stream_is_fixed_for_all_time() -> None:
    assert stream_seed(0, P0, "train", 1) == 756837581056676760


def test_streams_differ_by_run_peer_purpose_and_round() -> None:
    streams = {
        stream_seed(run, peer, purpose, round_no)
        for run in (0, 1)
        for peer in (P0, EVERYONE)
        for purpose in ("mix", "train")
        for round_no in (1, 2)
    }
    assert len(streams) == 16
    assert all(0 <= seed < 2**63 for seed in streams)


def test_equal_streams_draw_equally_from_all_three_generators() -> None:
    with seeded(7, P0, "train", 3):
        first = drawn()
    with seeded(7, P0, "train", 3):
        assert drawn() == first
    with seeded(7, P0, "train", 4):
        assert not set(drawn()) & set(first)


def test_the_value_of_the_block_is_its_seed() -> None:
    with seeded(7, P0, "train", 3) as seed:
        assert seed == stream_seed(7, P0, "train", 3)


def test_a_block_leaves_no_trace_in_the_global_generators_even_when_it_fails() -> None:
    with forked(1):
        drawn()
        after = drawn()
    with forked(1):
        drawn()
        try:
            with forked(2):
                drawn()
                raise RuntimeError
        except RuntimeError:
            pass
        assert drawn() == after

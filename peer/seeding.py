"""The one place that seeds the global generators of torch, numpy and random.

Dropout, initialisers and data augmentation draw from global generators. Whoever runs them does so
inside `seeded`, which gives them a stream of their own and puts the old state back.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch

from protocol.ids import PeerId

__all__ = ["EVERYONE", "forked", "seeded", "stream_seed"]

EVERYONE = PeerId("*")  # for what all peers draw alike, e.g. the initial model


def stream_seed(run_seed: int, peer: PeerId, purpose: str, round_no: int) -> int:
    """One stream per peer, purpose and round, the same on every machine; in [0, 2^63)."""
    name = f"{run_seed}/{peer}/{purpose}/{round_no}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest()) >> 1


@contextmanager
def seeded(run_seed: int, peer: PeerId, purpose: str, round_no: int) -> Iterator[int]:
    """Run a block on its own stream; its value is the stream's seed, for explicit generators."""
    seed = stream_seed(run_seed, peer, purpose, round_no)
    with forked(seed):
        yield seed


@contextmanager
def forked(seed: int) -> Iterator[None]:
    """Seed the global generators for a block, and put their states back after it."""
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpus = range(torch.cuda.device_count()) if on_gpu else ()
    # numpy's legacy global state is what third-party models draw from
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002 - see above
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)  # noqa: TID251 - the one place
        np.random.seed(seed % 2**32)  # noqa: NPY002 - see above
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002 - see above
            random.setstate(python_state)

"""What a search found worth keeping, once more, without the tool that found it."""

import tracemalloc

import pytest

from tests.fuzz.corpus import CORPUS, inputs
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CORPUS_BYTES = 200_000  # all of it
PEAK_BYTES = 24 << 20  # whatever is claimed; the largest piece has 1 MiB


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_that_was_kept_is_survived_in_little_memory(target: str) -> None:
    kept = (*seeds(target), *inputs(target))
    assert len(inputs(target)) >= 10
    TARGETS[target](b"")
    tracemalloc.start()
    try:
        for data in kept:
            TARGETS[target](data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES


def test_the_corpus_is_small_and_of_targets_that_there_are() -> None:
    files = list(CORPUS.iterdir())
    assert {path.stem for path in files} == set(TARGETS)
    assert sum(path.stat().st_size for path in files) <= CORPUS_BYTES

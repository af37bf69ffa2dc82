"""What holds for every test: examples, order, threads, and skips with their reasons."""

import os
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings

from tests.leaks import no_leaks  # noqa: F401 - a fixture, found by its name

INTEGRATION = Path(__file__).parent / "integration"

# `make test` looks at the same few examples each time; `make test-long` draws many by its seed.
settings.register_profile(
    "default", max_examples=50, derandomize=True, deadline=None, database=None
)
settings.register_profile(
    "long", max_examples=500, derandomize=False, deadline=None, print_blob=True
)
settings.load_profile("default")  # --hypothesis-profile is read later


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order-seed", type=int, help="run files, and tests in a file, in this order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("order_seed")
    if seed is not None:
        items[:] = _reordered(items, Random(seed))
    for mark, why_not in (("root", _why_no_namespaces), ("cuda", _why_no_cuda)):
        marked = [item for item in items if item.get_closest_marker(mark)]
        reason = why_not() if marked else ""
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup() -> None:
    """Keep torch to one thread where a test has imported it: tests are small and share cores."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def leave_nothing_behind(request: pytest.FixtureRequest) -> None:
    """Hold each integration test to ending the threads, files and processes that it began.

    Asked for first, so that it looks last: after everything that the test's own fixtures close.
    """
    if request.path.is_relative_to(INTEGRATION):
        request.getfixturevalue("no_leaks")


def _reordered(items: list[pytest.Item], chance: Random) -> list[pytest.Item]:
    """Shuffle the files, and the tests within each: fixtures of a file are still made once."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    chance.shuffle(files)
    for tests in files:
        chance.shuffle(tests)
    return [test for tests in files for test in tests]


def _why_no_namespaces() -> str:
    if os.geteuid() != 0:
        return "needs root: hosts are network namespaces"
    if shutil.which("ip") is None:
        return "needs the command ip: apt-get install iproute2"
    tried = subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, text=True, check=False
    )
    return f"may not make network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def _why_no_cuda() -> str:
    import torch  # noqa: PLC0415 - takes seconds, and only tests of CUDA need to know

    return "" if torch.cuda.is_available() else "needs a CUDA device"

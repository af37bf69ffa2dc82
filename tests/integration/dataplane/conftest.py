"""What tests that start processes need once."""

from multiprocessing import resource_tracker

import pytest


@pytest.fixture(scope="session")
def tracked() -> None:
    """The first process that is spawned starts one that stays: before anything is counted."""
    resource_tracker.ensure_running()

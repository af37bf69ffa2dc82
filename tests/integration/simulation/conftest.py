"""Data that simulations of many methods share."""

from pathlib import Path

import pytest

from peer.data.make import make_shards
from peer.data.options import MakeOptions


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three shards, large enough for every model."""
    folder = tmp_path_factory.mktemp("simulated") / "shards"
    options = {"sources": "optdigits", "peers": 3, "samples_per_class": 2, "size": 12}
    make_shards(MakeOptions.from_mapping(options, base=folder), folder, force=False)
    return folder

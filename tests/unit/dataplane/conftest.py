"""Nodes in memory and snapshots on disk, small and quick."""

from collections.abc import Iterator

import pytest

from protocol.transport.memory import MemoryNetwork, MemoryTransport
from tests.unit.dataplane.nodes import A_KEY, B_KEY, Nodes


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    network = MemoryNetwork()
    a, b = (MemoryTransport(network, key=key) for key in (A_KEY, B_KEY))
    yield Nodes(a, b)
    a.close()
    b.close()

"""The loop of a peer: what it does to the connections of a neighbour that has moved."""

from contextlib import closing
from pathlib import Path
from typing import cast

from peer.dataplane.events import Event, PullFailed
from peer.dataplane.inbox import Inbox
from peer.dataplane.puller import Puller
from peer.dataplane.server import Server
from peer.display import Silence
from peer.effects import Dial, Fetch
from peer.node import Node, Plan
from peer.roles import Role
from peer.runtime import Runtime, Sockets
from protocol.clock import MonotonicClock
from protocol.ids import PeerId
from protocol.transport.memory import MemoryNetwork, MemoryTransport
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, Join
from tests.unit.machine.stage import digest_of, manifest_of

B = PeerId("b")
KEY = bytes(32)
PATIENCE_S = 20.0  # for what takes milliseconds


def node() -> Node:
    join = Join(
        version=WIRE_VERSION,
        token=bytes(16),
        name="a",
        role="peer",
        instance=bytes(8),
        address="tcp://127.0.0.1:1",
        sign_key=KEY,
        wishes=(),
    )
    plan = Plan(
        me=PeerId("a"),
        explicit={},
        data="shard",
        device="cpu",
        role=Role.PEER,
        out="",
        alone=False,
    )
    return Node(plan, Membership(join, sign_key=KEY, where="nowhere"))


def test_what_was_pulled_from_a_neighbours_old_address_fails_when_it_has_a_new_one(
    tmp_path: Path,
) -> None:
    with closing(MemoryTransport(MemoryNetwork(), key=KEY)) as transport:
        events: Inbox[Event] = Inbox(transport.wake())
        with Puller(transport, events=events) as puller:
            runtime = Runtime(
                node=node(),
                facts=None,
                sockets=Sockets(
                    transport=transport,
                    coordinator=transport.call("tcp://127.0.0.1:1", server_key=KEY),
                    server=cast("Server", None),  # nobody asks this peer for anything
                    puller=puller,
                    events=events,
                ),
                display=Silence(),
                clock=MonotonicClock(),
            )
            runtime._directory = tmp_path
            runtime._do(Dial(B, "tcp://127.0.0.1:2", KEY))
            runtime._do(Fetch(B, manifest_of("b", 1), digest_of("b", 1), 0))
            runtime._do(Dial(B, "tcp://127.0.0.1:3", KEY))
            poller = transport.poller()
            poller.add(events.wake)
            poller.poll(PATIENCE_S)
            assert list(events.drain()) == [PullFailed(1, B, "hung up")]

"""Four hosts with addresses of their own, started with nothing but the join string."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from protocol.joinstring import JoinString
from tests.integration.peers.village import User, village

ROUNDS = 3
NET = "10.93.7"
COORDINATOR_PORT = 7733  # the default: nothing is typed


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


@contextmanager
def hosts(num: int) -> Iterator[Sequence[str]]:
    """Network namespaces on one bridge, each with an address, no default route, no name service."""
    switch = f"kinfolk-{os.getpid()}"
    with ExitStack() as stack:

        def namespace(name: str) -> str:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            return name

        namespace(switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge", "stp_state", "0")
        ip("-n", switch, "link", "set", "br0", "up")
        names = []
        for number in range(1, num + 1):
            name, port = namespace(f"{switch}-{number}"), f"port{number}"
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", name, "addr", "add", f"{NET}.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
            names.append(name)
        yield names


def on(namespace: str, user: User) -> User:
    user.prefix = ("ip", "netns", "exec", namespace)
    return user


@pytest.mark.long
@pytest.mark.root
def test_hosts_with_their_own_addresses_need_only_the_join_string(tmp_path: Path) -> None:
    with hosts(4) as namespaces, village(tmp_path) as place:
        place.deal("abc")
        here, *others = (on(namespace, place.user()) for namespace in namespaces)
        coordinator = here.coordinator(founders=3, model="mlp", run__rounds=ROUNDS)
        join = JoinString.parse(coordinator.out)
        assert (join.host, join.port) == (f"{NET}.1", COORDINATOR_PORT)
        peers = []
        for user, name in zip(others, "abc", strict=True):
            assert user.type("peer", "join", coordinator.out.strip()).end() == 0
            peers.append(user.peer(name, "--name", name))
        for number, peer in enumerate(peers, 2):
            assert peer.end() == 0, peer.err
            assert f"reachable at tcp://{NET}.{number}:" in peer.err
            assert [len(record["used"]) for record in peer.rounds().values()] == [0, 2, 2]

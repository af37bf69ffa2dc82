"""The lab: hosts on one machine, what goes wrong between them, and that nothing of it stays."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.integration.peers.village import User, village

TOOLS = Path(__file__).parents[3] / "deploy" / "lab"
NAME = f"t{os.getpid()}"  # another lab may be up on this machine
ROUNDS = 12


class Lab:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environ = {**os.environ, "KINFOLK_LAB": NAME}

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TOOLS / words[0], *words[1:]],
            capture_output=True,
            text=True,
            env=self._environ,
            timeout=60,
            check=False,
        )

    def do(self, *words: str) -> str:
        done = self.type(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def up(self, text: str) -> None:
        file = self._folder / "lab.toml"
        file.write_text(text)
        self.do("up", str(file))

    def hears(self, host: str, other: str) -> bool:
        """Does a packet come back?"""
        return self.type("exec", host, "ping", "-c1", "-W0.3", other).returncode == 0

    def round_trip_ms(self, host: str, other: str) -> float:
        said = self.do("exec", host, "ping", "-c5", "-i0.05", "-W2", other)
        found = re.search(r"min/avg/max/\w+ = ([\d.]+)/", said)
        assert found is not None
        return float(found[1])

    def received_bytes(self, host: str) -> int:
        return int(self.do("exec", host, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))


def traces() -> str:
    """All that this test's lab might leave."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    found = [line for line in listed.stdout.splitlines() if f"kinfolk-{NAME}" in line]
    found += [str(path) for path in Path("/run/kinfolk-lab").glob(f"*{NAME}*")]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if f"kinfolk-{NAME}".encode() in words:
            found.append(words.decode())
    return "\n".join(found)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.type("down")
    assert traces() == ""


@pytest.mark.root
def test_hosts_are_cut_slowed_unplugged_and_mended(lab: Lab) -> None:
    lab.up('[lab]\nnet = "10.78.1.0/24"\nhosts = ["a", "b", "c"]\n[host.c]\ndelay = 30\n')
    b, c = "10.78.1.2", "10.78.1.3"
    assert lab.hears("a", b)
    assert lab.round_trip_ms("a", c) >= 60.0  # there and back
    lab.do("delay", "c", "0")
    assert lab.round_trip_ms("a", c) < 60.0
    lab.do("cut", "a", "b,c")
    assert [lab.hears("a", b), lab.hears("a", c), lab.hears("b", c)] == [False, False, True]
    lab.do("cut", "--one-way", "b", "c")  # takes the place of the cut before
    assert [lab.hears("a", b), lab.hears("b", c)] == [True, False]
    lab.do("heal")
    assert lab.hears("b", c)
    lab.do("link", "b", "down")
    assert not lab.hears("a", b)
    lab.do("link", "b", "up")
    lab.do("loss", "b", "100")
    assert not lab.hears("a", b)
    lab.do("loss", "b", "0")
    assert lab.hears("a", b)
    lab.do("rate", "b", "5")
    assert "b            10.78.1.2       5 Mbit/s" in lab.do("show")
    lab.do("down")
    assert traces() == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[lab]\nhosts = 0\n", "lab.hosts must be a number or names, from 1 to 200"),
        ('[lab]\nhosts = ["a", "a"]\n', "has a name twice"),
        ('[lab]\nhosts = ["A/b"]\n', "a host cannot be named 'A/b'"),
        ('[lab]\nnet = "10.0.0.0/30"\n', "has no room for 4 hosts"),
        ("[lab]\nhots = 3\n", "no key 'hots': there are name, net, hosts"),
        ("[host.h9]\nrate = 1\n", "[host.h9] is no host: there are h1, h2, h3, h4"),
        ('[host.h1]\nrate = "fast"\n', "h1.rate is 'fast', must be a number"),
        ("[host.h1]\nloss = 101\n", "loss is 101.0, must be in [0, 100] percent"),
        ("[lab\n", "is not TOML"),
    ],
)
def test_a_mistake_in_a_file_is_told_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    program = runpy.run_path(str(TOOLS / "lab.py"))
    with pytest.raises(program["LabError"], match=re.escape(said)) as caught:
        program["read_file"](file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({}, ""),
        ({"rate_mbit": 5.0}, "tbf rate 5mbit burst 256kb latency 100ms"),
        ({"delay_ms": 20.0}, "netem delay 20ms"),
        ({"delay_ms": 20.0, "jitter_ms": 5.0}, "netem delay 22.5ms 2.5ms"),
        ({"delay_ms": 20.0, "rate_mbit": 5.0}, "netem delay 20ms rate 5mbit"),
    ],
)
def test_where_the_kernel_can_delay_it_is_asked_to(host: dict[str, float], words: str) -> None:
    program = runpy.run_path(str(TOOLS / "lab.py"))
    made = program["Host"]("h1", 1, **host)
    assert program["qdisc"](made, has_netem=True) == words.split()


@pytest.mark.root
def test_a_command_without_a_lab_says_so(lab: Lab) -> None:
    done = lab.type("heal")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: which lab? up are: ")


def on(host: str, user: User) -> User:
    user.prefix = (str(TOOLS / "exec"), host)
    return user


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_link_that_goes_in_mid_transfer_and_comes_back_costs_some_rounds_and_no_run(
    lab: Lab, tmp_path: Path
) -> None:
    lab.up(
        '[lab]\nnet = "10.78.2.0/24"\nhosts = ["gate", "a", "b", "c"]\n[host.b]\nrate = 2\n'
    )  # 220 kB take a second to b, and one from it
    with village(tmp_path / "village") as place:
        place.deal("abc")
        gate, *others = (on(host, place.user(KINFOLK_LAB=NAME)) for host in ("gate", "a", "b", "c"))
        coordinator = gate.coordinator(
            "--lease=5", founders=3, model="mlp", run__rounds=ROUNDS, pace__silence_s=4.0
        )
        peers = []
        for user, name in zip(others, "abc", strict=True):
            assert user.type("peer", "join", coordinator.out.strip()).end() == 0
            peers.append(user.peer(name, "--name", name))
        a, b, c = peers
        b.wait_for_round(2)
        before = lab.received_bytes("b")
        b.wait_for("a transfer that has begun", lambda: lab.received_bytes("b") > before + 50_000)
        lab.do("link", "b", "down")
        for peer in (a, c):
            peer.wait_for_event("lost", peer="b")
        lab.do("link", "b", "up")
        for peer in (a, c):
            peer.wait_for_event("returned", peer="b")
        for peer in peers:
            assert peer.end() == 0, peer.err
            assert max(peer.rounds()) == ROUNDS
        for peer in (a, c):
            late = [set(record["used"]) for number, record in peer.rounds().items() if number > 6]
            assert "b" in set().union(*late)


FAULTS = """
[[fault]]
kind = "partition"
at_round = 3
until_round = 5
groups = [["a", "b"], ["c"]]
[[fault]]
kind = "slow"
at_round = 1
factor = 30
peers = ["a", "b", "c"]
"""


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(300)
def test_hosts_carry_out_one_file_of_faults_and_one_that_was_killed_comes_back_without_the_gate(
    lab: Lab, tmp_path: Path
) -> None:
    lab.up('[lab]\nnet = "10.78.3.0/24"\nhosts = ["gate", "a", "b", "c"]\n')
    file = tmp_path / "faults.toml"
    file.write_text(FAULTS)
    with village(tmp_path / "village") as place:
        place.deal("abc")
        gate, *others = (on(host, place.user(KINFOLK_LAB=NAME)) for host in ("gate", "a", "b", "c"))
        coordinator = gate.coordinator(
            founders=3,
            model="mlp",
            run__rounds=ROUNDS,
            pace__quorum=1.0,
            pace__bound_s=90.0,
        )
        join = coordinator.out.strip()
        users = dict(zip("abc", others, strict=True))
        peers = {
            name: user.peer(name, f"--join={join}", f"--faults={file}")
            for name, user in users.items()
        }
        peers["b"].wait_for_round(6)
        lab.do("cut", "gate", "a,b,c")  # packets vanish: no connection is refused
        peers["b"].signal_group(SIGKILL)
        peers["b"].end()
        before = max(peers["b"].rounds())
        peers["b"] = users["b"].peer("b", f"--join={join}", f"--faults={file}", "--resume")
        for name, peer in peers.items():
            assert peer.end() == 0, peer.err
            assert max(peer.rounds()) == ROUNDS, name
        assert min(peers["b"].rounds()) > before
        (lost,) = peers["b"].happenings("coordinator-lost")
        assert "going on by the view of epoch" in lost["reason"]
        # With quorum 1 nobody was given up, so each has all that the plan lets it have.
        for name in "ac":
            for number, record in peers[name].rounds().items():
                cut = {} if number not in (3, 4) else dict.fromkeys("ab" if name == "c" else "c")
                assert record["cut"].keys() == cut.keys()
                rest = set("abc") - {name} - cut.keys() if number > 1 else set()
                assert record["used"].keys() == rest


def test_without_root_the_lab_says_that_it_needs_it() -> None:
    code = (
        "import os, runpy, sys; os.geteuid = lambda: 1000; sys.argv = ['lab', 'show']; "
        f"runpy.run_path({json.dumps(str(TOOLS / 'lab.py'))}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: the lab needs root: namespaces are the kernel's\n"

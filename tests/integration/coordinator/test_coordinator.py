"""`coordinator start` as a process: what it prints, whom it lets in, how it ends and comes back."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from select import select
from signal import SIGINT, SIGKILL, SIGTERM

import psutil
import pytest

from protocol.home import Home, find_join
from protocol.joinstring import JoinString
from protocol.transport.keys import new_identity
from protocol.wire.membership import Patience
from protocol.wire.membership_effects import (
    GaveUp,
    Refused,
)
from protocol.wire.messages import Member
from tests.integration.coordinator.station import (
    WHOLE,
    WITHIN_S,
    Coordinator,
    Host,
    Visitor,
    command,
    started,
)
from tests.integration.dataplane.shop import GREETING, connections, is_cut, pour, until
from tests.integration.transport.flood import flooding

LOCAL = ("--bind", "127.0.0.1:0")


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    made = [Host(), Host()]
    yield made
    for host in made:
        host.transport.close()


def test_the_join_string_stands_alone_on_stdout_and_is_stored_for_this_host(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL, "--run", "demo") as (coordinator, join):
        home = Home(tmp_path)
        assert find_join(None, {"KINFOLK_HOME": str(tmp_path)}).join == join
        assert home.local_join.stat().st_mode & 0o777 == 0o600
        code, out, err = coordinator.stop(SIGTERM)
    assert (code, out) == (0, "")
    assert f"run demo at tcp://127.0.0.1:{join.port}" in err
    assert not home.local_join.exists()  # nobody is led to a coordinator that has ended


def test_nodes_join_over_curve_and_the_run_starts(tmp_path: Path, hosts: list[Host]) -> None:
    with started(tmp_path, *LOCAL, "--founders", "2") as (coordinator, join):
        a, b = hosts[0].visit(join, "a"), hosts[1].visit(join, "b")
        a.get_ready()
        b.get_ready()
        a.until(lambda: a.machine.view is not None and a.machine.view.founding == ("a", "b"))
        _, _, err = coordinator.stop()
    assert "b is ready: 2 peers, newest round 0" in err
    assert "the run starts: a, b" in err


def test_a_second_key_with_a_name_and_a_wrong_token_are_told(
    tmp_path: Path, hosts: list[Host]
) -> None:
    with started(tmp_path, *LOCAL) as (_, join):
        hosts[0].visit(join, "a").get_ready()
        told = hosts[1].visit(join, "a").until_told(Refused)
        assert "the name a is taken by a peer with another key" in told.reason
        told = hosts[1].visit(replace(join, token=bytes(16)), "b").until_told(Refused)
        assert "the token is not this run's" in told.reason


def test_a_coordinator_with_another_key_is_not_spoken_to(tmp_path: Path, hosts: list[Host]) -> None:
    with started(tmp_path, *LOCAL) as (_, join):
        patience = Patience(give_up_s=0.5)
        wrong = new_identity().curve_public
        told = hosts[0].visit(join, "a", patience=patience, server_key=wrong).until_told(GaveUp)
    assert "tried for 0.5 s" in told.reason
    assert "its key is another than the join string's" in told.reason


def test_garbage_on_the_port_hurts_nobody(tmp_path: Path, hosts: list[Host]) -> None:
    with started(tmp_path, *LOCAL) as (coordinator, join):
        for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), bytes(64)):
            with socket.create_connection((join.host, join.port), WITHIN_S) as stranger:
                stranger.sendall(junk)
                with suppress(ConnectionResetError):  # one way of hanging up
                    while stranger.recv(4096):
                        pass
        caller = hosts[1].transport.call(join.address, server_key=join.curve_key)
        poller = hosts[1].transport.poller()
        poller.add(caller)
        while caller.receive() is None:
            poller.poll(WITHIN_S)
        caller.send(b"\xff" * 4000)  # garbage from within a good handshake
        assert "WARNING" in coordinator.line_with("dropped cause='garbage'")
        hosts[0].visit(join, "a").get_ready()
        assert coordinator.stop()[0] == 0


def test_a_killed_coordinator_comes_back_with_its_members_and_its_join_string(
    tmp_path: Path, hosts: list[Host]
) -> None:
    options = ("--run", "demo", "--founders", "1", "--lease", "1")
    with started(tmp_path, *LOCAL, *options) as (coordinator, join):
        a = hosts[0].visit(join, "a")
        a.get_ready()
        coordinator.stop(SIGKILL)
        with started(tmp_path, "--run", "demo", "--lease", "1") as (again, same):
            assert same == join
            a.until(lambda: a.machine.view is not None and a.machine.view.epoch.incarnation == 2)
            assert a.state == "ready"
            assert a.machine.view is not None
            assert a.machine.view.founding == ("a",)
            _, _, err = again.stop()
    assert "resumed with 1 members" in err
    assert not any(isinstance(effect, Refused) for effect in a.told)


def test_a_torn_journal_is_told_and_the_run_goes_on(tmp_path: Path, hosts: list[Host]) -> None:
    with started(tmp_path, *LOCAL, "--run", "demo") as (coordinator, join):
        hosts[0].visit(join, "a").get_ready()
        coordinator.stop()
    journal = tmp_path / "coordinator" / "demo" / "journal.json"
    journal.write_bytes(journal.read_bytes()[:-30])
    with started(tmp_path, "--run", "demo") as (coordinator, same):
        assert same == join
        _, _, err = coordinator.stop()
    assert "journal.json is torn" in err
    assert "resumed from the one before it, 1 members" in err


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    with started(tmp_path, *LOCAL) as (coordinator, _):
        assert coordinator.stop(number)[0] == 0


def test_a_port_in_use_is_one_line_and_the_operators_fault(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL, "--run", "one") as (_, join):
        second = command(tmp_path, "start", "--bind", f"127.0.0.1:{join.port}", "--run", "two")
    assert second.returncode == 2
    assert second.stdout == ""
    first, hint = second.stderr.splitlines()
    assert first == f"Error: tcp://127.0.0.1:{join.port} is in use"
    assert "--bind" in hint
    assert not (tmp_path / "coordinator" / "two").exists()


def test_runs_without_a_name_get_names_of_their_own(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL), started(tmp_path, *LOCAL):
        assert len([path for path in (tmp_path / "coordinator").iterdir() if path.is_dir()]) == 2


def test_one_run_has_one_coordinator(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL, "--run", "one") as (coordinator, _):
        second = command(tmp_path, "start", "--bind", "127.0.0.1:0", "--run", "one")
        pid = coordinator.process.pid
    assert second.returncode == 2
    assert re.search(
        f"Error: a coordinator of the run one is already running on .*, pid {pid}", second.stderr
    )


def test_show_tells_the_members_of_a_run(tmp_path: Path, hosts: list[Host]) -> None:
    with started(tmp_path, *LOCAL, "--run", "demo", "--founders", "1") as (coordinator, join):
        hosts[0].visit(join, "a").get_ready()
        text = command(tmp_path, "show").stdout
        shown = json.loads(command(tmp_path, "show", "--run", "demo", "--json").stdout)
        pid = coordinator.process.pid
    assert "1 peer, newest round 0" in text
    assert shown["running"].endswith(f"pid {pid}")
    assert shown["founding"] == ["a"]
    assert shown["options"] == dict(WHOLE)
    assert [(m["name"], m["state"]) for m in shown["members"]] == [("a", "ready")]


def test_show_without_any_run_is_the_operators_fault(tmp_path: Path) -> None:
    shown = command(tmp_path, "show")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "no coordinator has led a run on this host" in shown.stderr


def test_json_is_one_object_a_line(tmp_path: Path, hosts: list[Host]) -> None:

    coordinator = Coordinator(tmp_path, *LOCAL, "--founders", "1", "--json")
    first = json.loads(coordinator.first_line())
    assert first["event"] == "listening"
    hosts[0].visit(JoinString.parse(first["join"]), "a").get_ready()
    _, out, _ = coordinator.stop()
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert events == ["joined", "ready", "founded"]


def test_the_coordinator_knows_no_torch_and_no_numpy(tmp_path: Path) -> None:
    heavy = "[m for m in ('torch', 'numpy', 'rich') if m in sys.modules]"
    code = f"import coordinator.cli, sys; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_on_a_terminal_one_line_tells_who_is_waited_for(tmp_path: Path, hosts: list[Host]) -> None:
    ours, theirs = os.openpty()
    with started(tmp_path, *LOCAL, "--founders", "3", stderr=theirs) as (coordinator, join):
        hosts[0].visit(join, "a").get_ready()
        coordinator.stop()
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # EIO: the other end is closed and all is read
        while more := os.read(ours, 65536):
            seen += more
    os.close(ours)
    assert b"1 of 3 peers ready: a; waiting for 2" in seen
    assert b"a joined as a peer" in seen


@pytest.mark.root
def test_a_host_without_a_default_route_still_finds_its_address() -> None:
    script = (
        "ip link add k0 type veth peer name k1 && ip addr add 10.77.0.5/24 dev k0 && "
        "ip link set k0 up && ip link set k1 up && "
        f"{sys.executable} -c 'from protocol.transport.addresses import default_host; "
        "print(default_host())'"
    )
    told = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "10.77.0.5\n"


def test_a_member_of_a_running_coordinator_is_revoked_and_stays_so(
    tmp_path: Path, hosts: list[Host]
) -> None:
    with started(tmp_path, *LOCAL, "--run", "demo") as (coordinator, join):
        a, b = hosts[0].visit(join, "a"), hosts[1].visit(join, "b")
        a.get_ready()
        b.get_ready()
        done = command(tmp_path, "revoke", "a")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("a is revoked; it came in by the token")
        assert "this key was revoked" in a.until_told(Refused).reason
        b.until(lambda: "revoked" in [m.state for m in members_of(b)])
        coordinator.stop(SIGKILL)
    with started(tmp_path, "--run", "demo") as (_, join):
        told = hosts[0].visit(join, "a").until_told(Refused)
        assert "this key was revoked" in told.reason


def members_of(visitor: Visitor) -> tuple[Member, ...]:
    return visitor.machine.view.members if visitor.machine.view is not None else ()


def test_a_member_is_revoked_while_the_coordinator_is_down(
    tmp_path: Path, hosts: list[Host]
) -> None:
    with started(tmp_path, *LOCAL, "--run", "demo") as (coordinator, join):
        hosts[0].visit(join, "a").get_ready()
        coordinator.stop()
    assert command(tmp_path, "revoke", "a", "--run", "demo").returncode == 0
    missing = command(tmp_path, "revoke", "nobody")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "Error: there is no member nobody in the run demo\n  there are: a" in missing.stderr
    with started(tmp_path, "--run", "demo") as (_, join):
        told = hosts[0].visit(join, "a").until_told(Refused)
        assert "this key was revoked" in told.reason


@pytest.mark.long
def test_who_fills_a_coordinators_memory_is_refused_over_its_restarts_until_it_is_lifted(
    tmp_path: Path, hosts: list[Host]
) -> None:
    keys = hosts[0].identity
    with started(tmp_path, *LOCAL, "--run", "demo") as (coordinator, join):
        hosts[0].visit(join, "a").get_ready()
        assert command(tmp_path, "refused").stdout == ""
        with flooding(join.port, server_key=join.curve_key, keys=keys):
            told = coordinator.line_with("is refused from now on")
        assert f"a (key {keys.curve_public.hex()[:16]}) is refused from now on: " in told
        until(lambda: "MiB of a message without an end" in command(tmp_path, "refused").stdout)
        coordinator.stop(SIGKILL)
    listed = command(tmp_path, "refused", "list", "--run", "demo").stdout
    since = r"since \d{4}-\d\d-\d\d \d\d:\d\d"
    digits = keys.curve_public.hex()[:16]
    assert re.fullmatch(rf"{digits}  a +{since}  \d+ MiB of a message .*\n", listed), listed
    assert json.loads(command(tmp_path, "show", "--json").stdout)["refused"][0]["name"] == "a"
    with started(tmp_path, "--run", "demo") as (coordinator, join):
        assert "; 1 key refused for what they sent" in coordinator.line_with("resumed with")
        patience = Patience(give_up_s=1.0)
        hosts[0].visit(join, "a", patience=patience).until_told(GaveUp)
        hosts[1].visit(join, "b").get_ready()  # others are let in
        assert "a (key " in (done := command(tmp_path, "refused", "lift", "a")).stdout
        assert (done.returncode, done.stderr) == (0, "")
        hosts[0].visit(join, "a").get_ready()
    again = command(tmp_path, "refused", "lift", "a")
    assert (again.returncode, again.stdout) == (2, "")
    assert "Error: no key of a is refused in the run demo" in again.stderr


def test_a_single_use_token_lets_one_in(tmp_path: Path, hosts: list[Host]) -> None:
    with started(tmp_path, *LOCAL, "--run", "demo") as (_, join):
        made = command(tmp_path, "tokens", "new", "--single-use")
        single = JoinString.parse(made.stdout)
        assert replace(single, token=join.token) == join
        hosts[0].visit(single, "a").get_ready()
        told = hosts[1].visit(single, "b").until_told(Refused)
        assert "was good once and is used up: ask for a new join string" in told.reason
        listed = command(tmp_path, "tokens").stdout.splitlines()
        assert [line.split()[1:] for line in listed] == [
            ["for", "ever,", "used", "0", "times", "lets", "nodes", "in"],
            [
                "for",
                "ever,",
                "used",
                "1",
                "of",
                "1",
                "was",
                "good",
                "once",
                "and",
                "is",
                "used",
                "up",
            ],
        ]
        first = listed[0].split()[0]
        assert command(tmp_path, "tokens", "withdraw", first).stdout == (
            f"token {first} is withdrawn\n"
        )
        told = hosts[1].visit(join, "b").until_told(Refused)
        assert f"the token {first} was withdrawn" in told.reason


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--until", "tomorrow"), "Error: --until tomorrow is not a date"),
        (("--until", "2001-01-01"), "Error: the token would be over before it began"),
        (("--single-use", "--uses", "2"), "Error: --single-use and --uses contradict each other"),
    ],
)
def test_a_token_that_cannot_be_made_is_one_line(
    tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    with started(tmp_path, *LOCAL) as (coordinator, _):
        coordinator.stop()
    done = command(tmp_path, "tokens", "new", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr


def test_a_lost_journal_is_rebuilt_before_anyone_new_is_let_in(
    tmp_path: Path, hosts: list[Host]
) -> None:
    options = ("--run", "demo", "--lease", "1")
    with started(tmp_path, *LOCAL, *options) as (coordinator, join):
        a, b = hosts[0].visit(join, "a"), hosts[1].visit(join, "b")
        a.get_ready()
        b.get_ready()
        assert command(tmp_path, "revoke", "b").returncode == 0
        a.until(lambda: "revoked" in [m.state for m in members_of(a)])
        coordinator.stop(SIGKILL)
        for path in (tmp_path / "coordinator" / "demo").glob("journal*"):
            path.unlink()
        with started(tmp_path, "--run", "demo", "--lease", "1") as (again, same):
            assert same == join
            new = hosts[1].visit(join, "new")  # b's key, under another name
            a.until(lambda: a.machine.view is not None and a.machine.view.epoch.incarnation > 1)
            assert (a.state, a.machine.view and a.machine.view.founding) == ("ready", ("a", "b"))
            assert "this key was revoked" in new.until_told(Refused).reason
            _, _, err = again.stop()
    assert "waiting for a member to show its newest view; nobody new is let in before" in err


def test_a_run_whose_keys_are_gone_too_is_the_operators_fault(tmp_path: Path) -> None:
    with started(tmp_path, *LOCAL, "--run", "demo") as (coordinator, _):
        coordinator.stop()
    folder = tmp_path / "coordinator" / "demo"
    for path in (*folder.glob("journal*"), folder / "identity.key"):
        path.unlink()
    again = command(tmp_path, "start", "--run", "demo")
    assert (again.returncode, again.stdout) == (2, "")
    assert "the journal and the keys of the run demo are both gone" in again.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_thousand_that_say_nothing_neither_fill_a_coordinator_nor_keep_nodes_out(
    tmp_path: Path, hosts: list[Host]
) -> None:
    with started(tmp_path, *LOCAL) as (coordinator, join):
        hosts[0].visit(join, "a").get_ready()
        process = psutil.Process(coordinator.process.pid)
        fds, memory = process.num_fds(), process.memory_info().rss
        most_fds = most_memory = 0
        silent = [sys.executable, "-m", "tests.integration.transport.silent", str(join.port)]
        with subprocess.Popen(
            [*silent, "10000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as strangers:
            assert strangers.stdout is not None
            while not select([strangers.stdout], [], [], 0.05)[0]:
                most_fds = max(most_fds, process.num_fds() - fds)
                most_memory = max(most_memory, process.memory_info().rss - memory)
            assert int(strangers.stdout.readline()) == 10_000
            hosts[1].visit(join, "b").get_ready()
            strangers.kill()
        assert 0 < most_fds < 4096 + 500
        assert most_memory < 100 << 20
        assert coordinator.stop()[0] == 0


@pytest.mark.long
def test_strangers_that_greet_slowly_or_claim_gigabytes_cost_a_coordinator_little(
    tmp_path: Path, hosts: list[Host]
) -> None:
    with started(tmp_path, *LOCAL) as (coordinator, join), ExitStack() as stack:
        hosts[0].visit(join, "a").get_ready()
        process = psutil.Process(coordinator.process.pid)
        before = process.num_fds(), process.memory_info().rss, process.num_threads()
        slow = connections(stack, join.port, 100)
        for stranger in slow:
            stranger.sendall(GREETING[:11])
        for claimed in (2 << 30, (1 << 63) - 1):
            for liar in connections(stack, join.port, 4):
                liar.sendall(GREETING + b"\2" + claimed.to_bytes(8))
                pour(liar)
        assert process.memory_info().rss - before[1] <= 8 << 20
        hosts[1].visit(join, "b").get_ready()
        until(lambda: all(map(is_cut, slow)))
        until(lambda: process.num_fds() <= before[0] + 4)  # b's connection, and room
        assert process.memory_info().rss - before[1] <= 8 << 20
        assert process.num_threads() == before[2]
        assert coordinator.stop()[0] == 0

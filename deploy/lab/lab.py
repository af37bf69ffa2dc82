#!/usr/bin/env python3
"""Hosts on one Linux machine: network namespaces on a bridge, and what goes wrong between them.

Root, iproute2 and nftables are needed, and nothing of Kinfolk. docs/lab.md tells how it is used.
One namespace is the switch: a bridge, whose nft table drops what a cut forbids. Each host is a
namespace with an address on `eth0`. What is in force stands in the lab's file under /run, and goes
with `down`, like everything else.
"""

import argparse
import contextlib
import ipaddress
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

STATE = Path("/run/kinfolk-lab")
NAME = re.compile(r"[a-z][a-z0-9-]{0,11}\Z")
MAX_HOSTS = 200
HEAL = "flush set bridge cut pairs"
WAIT_S = 5.0  # for a delay line to be there

# The table of every cut, and of every loss: nft wants a newline before each closing brace.
CUT_TABLE = """table bridge cut {
 set pairs { type ipv4_addr . ipv4_addr;
 }
 chain drops { type filter hook forward priority 0;
  ip saddr . ip daddr @pairs drop
 }
}
"""
LOSS_TABLE = """table inet loss {
 chain inwards { type filter hook input priority 0;
 }
}
"""


class LabError(Exception):
    """What the person must change, in one line."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host, and what is in force on its way to the switch, in both directions."""

    name: str
    number: int  # of its address
    rate_mbit: float = 0.0  # 0: as fast as it goes
    loss_percent: float = 0.0  # of the packets that come in
    delay_ms: float = 0.0
    jitter_ms: float = 0.0  # at most so much more, evenly drawn

    def __post_init__(self) -> None:
        if not NAME.match(self.name):
            raise LabError(f"a host cannot be named {self.name!r}: it must be like h1 or gate-2")
        for key, high in (("rate_mbit", 1e6), ("delay_ms", 1e4), ("jitter_ms", 1e4)):
            if not 0.0 <= getattr(self, key) <= high:
                raise LabError(
                    f"{self.name}: {key} is {getattr(self, key)}, must be in [0, {high:g}]"
                )
        if not 0.0 <= self.loss_percent <= 100.0:
            raise LabError(f"{self.name}: loss is {self.loss_percent}, must be in [0, 100] percent")


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab as it stands."""

    name: str
    net: str  # e.g. 10.77.0.0/24
    hosts: Mapping[str, Host] = field(default_factory=dict)
    has_netem: bool = False  # the kernel delays packets itself

    @property
    def switch(self) -> str:
        return f"kinfolk-{self.name}"

    def namespace(self, host: Host) -> str:
        return f"{self.switch}-{host.name}"

    def address(self, host: Host) -> str:
        return str(ipaddress.ip_network(self.net)[host.number])

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            raise LabError(f"there is no host {name!r}: there are {', '.join(self.hosts)}")
        return self.hosts[name]


# -- files ----------------------------------------------------------------------------------------


def read_file(path: Path) -> Lab:
    """Read a lab's TOML file.

    Raises:
        LabError: it cannot be read, or says what no lab can be.
    """
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise LabError(f"{path} is not TOML: {error}") from None
    lab = tables.get("lab", {})
    known(tables, ("lab", "host"), path)
    known(lab, ("name", "net", "hosts"), path)
    names = lab.get("hosts", 4)
    if isinstance(names, int) and not isinstance(names, bool):
        names = [f"h{number}" for number in range(1, names + 1)]
    if not isinstance(names, list) or not 1 <= len(names) <= MAX_HOSTS:
        raise LabError(f"{path}: lab.hosts must be a number or names, from 1 to {MAX_HOSTS}")
    name = str(lab.get("name", os.environ.get("KINFOLK_LAB", "lab")))
    if not NAME.match(name):
        raise LabError(f"{path}: lab.name = {name!r} must be like lab or day-2")
    hosts = {str(host): Host(str(host), at) for at, host in enumerate(names, 1)}
    if len(hosts) < len(names):
        raise LabError(f"{path}: lab.hosts has a name twice")
    for of, table in tables.get("host", {}).items():
        if of not in hosts:
            raise LabError(f"{path}: [host.{of}] is no host: there are {', '.join(hosts)}")
        hosts[of] = shaped(hosts[of], table, path)
    net = network(str(lab.get("net", "10.77.0.0/24")), len(names), path)
    return Lab(name, net, hosts)


def shaped(host: Host, table: Mapping[str, object], path: Path) -> Host:
    keys = {"rate": "rate_mbit", "loss": "loss_percent", "delay": "delay_ms", "jitter": "jitter_ms"}
    known(table, keys, path)
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LabError(f"{path}: {host.name}.{key} is {value!r}, must be a number")
        host = replace(host, **{keys[key]: float(value)})
    return host


def network(text: str, num_hosts: int, path: Path) -> str:
    try:
        net = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise LabError(f"{path}: lab.net: {error}") from None
    if net.num_addresses < num_hosts + 2:
        raise LabError(f"{path}: lab.net = {text} has no room for {num_hosts} hosts")
    return str(net)


def known(table: object, keys: Iterable[str], path: Path) -> None:
    if not isinstance(table, dict):
        raise LabError(f"{path}: {table!r} must be a table")
    for key in table:
        if key not in keys:
            raise LabError(f"{path} has no key {key!r}: there are {', '.join(keys)}")


def load() -> Lab:
    """The lab that is up: the one that KINFOLK_LAB names, or the only one."""
    wanted = os.environ.get("KINFOLK_LAB", "")
    files = [p for p in sorted(STATE.glob("*.json")) if wanted in ("", p.stem)]
    if len(files) != 1:
        there = ", ".join(path.stem for path in STATE.glob("*.json")) or "none"
        raise LabError(f"which lab? up are: {there}; KINFOLK_LAB=NAME names one")
    raw = json.loads(files[0].read_text())
    hosts = {name: Host(**of) for name, of in raw.pop("hosts").items()}
    return Lab(**raw, hosts=hosts)


def save(lab: Lab) -> None:
    STATE.mkdir(exist_ok=True)
    beside = STATE / f".{lab.name}"
    beside.write_text(json.dumps(asdict(lab), indent=1))
    beside.replace(STATE / f"{lab.name}.json")


# -- commands of the system -----------------------------------------------------------------------


def run(*words: str, text: str | None = None) -> str:
    """Run a command; its output.

    Raises:
        LabError: it failed; with what it said.
    """
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        package = {"nft": "nftables"}.get(words[0], "iproute2")
        raise LabError(f"{words[0]} is not installed: apt-get install {package}") from None
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def inside(namespace: str, *words: str, text: str | None = None) -> str:
    return run("ip", "netns", "exec", namespace, *words, text=text)


def namespaces(lab: Lab) -> list[str]:
    listed = (line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip())
    return [name for name in listed if name == lab.switch or name.startswith(f"{lab.switch}-")]


# -- up and down ----------------------------------------------------------------------------------


def up(path: Path) -> None:
    lab = read_file(path)
    if (STATE / f"{lab.name}.json").exists() or namespaces(lab):
        raise LabError(f"the lab {lab.name} is up already: deploy/lab/down takes it down")
    try:
        build(lab)
    except BaseException:
        remove(lab)
        raise


def build(lab: Lab) -> None:
    run("ip", "netns", "add", lab.switch)
    on = ("ip", "-n", lab.switch, "link")
    run(*on, "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
    run(*on, "set", "br0", "up")
    inside(lab.switch, "nft", "-f", "-", text=CUT_TABLE)
    lab = replace(lab, has_netem=can_delay(lab))
    save(lab)
    prefix = ipaddress.ip_network(lab.net).prefixlen
    for host in lab.hosts.values():
        namespace = lab.namespace(host)
        run("ip", "netns", "add", namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        inside(namespace, "nft", "-f", "-", text=LOSS_TABLE)
        plug(lab, host, prefix)
        shape(lab, host)
        print(f"{host.name}  {lab.address(host)}  {namespace}")


def can_delay(lab: Lab) -> bool:
    try:
        inside(lab.switch, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        inside(lab.switch, "tc", "qdisc", "del", "dev", "lo", "root")
    except LabError:
        return False
    return True


def plug(lab: Lab, host: Host, prefix: int) -> None:
    """Connect a host to the switch: by a cable, or by a line that holds frames up."""
    namespace, port = lab.namespace(host), f"p{host.number}"
    if (host.delay_ms or host.jitter_ms) and not lab.has_netem:
        delay_line(lab, host)
    else:
        cable = ("ip", "link", "add", "eth0", "netns", namespace, "type", "veth")
        run(*cable, "peer", "name", port, "netns", lab.switch)
    mac = f"02:6b:69:6e:00:{host.number:02x}"  # the same whatever it hangs on
    run("ip", "-n", namespace, "link", "set", "eth0", "address", mac)
    run("ip", "-n", namespace, "addr", "add", f"{lab.address(host)}/{prefix}", "dev", "eth0")
    run("ip", "-n", namespace, "link", "set", "eth0", "up")
    run("ip", "-n", lab.switch, "link", "set", port, "master", "br0", "up")


def delay_line(lab: Lab, host: Host) -> None:
    """Start the process between a tap in the host and one in the switch; it ends with either."""
    program = Path(__file__).with_name("delay.py")
    words = [sys.executable, "-I", "-S", str(program), lab.switch, f"p{host.number}"]
    words += [str(host.delay_ms / 1e3), str(host.jitter_ms / 1e3), str(host.number)]
    child = subprocess.Popen(
        ["ip", "netns", "exec", lab.namespace(host), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if child.stdout is None or child.stdout.readline().strip() != b"ready":
        raise LabError(f"no line that delays could be laid to {host.name}: is /dev/net/tun there?")
    child.stdout.close()
    child.returncode = 0  # it stays; nobody here waits for it


def unplug(lab: Lab, host: Host) -> None:
    with contextlib.suppress(ProcessLookupError):
        for pid in line_pids(lab, host):
            os.kill(pid, signal.SIGKILL)
    until_s = time.monotonic() + WAIT_S
    while has_eth0(lab, host) and time.monotonic() < until_s:
        with contextlib.suppress(LabError):  # a tap goes by itself when its process does
            run("ip", "-n", lab.namespace(host), "link", "del", "eth0")


def has_eth0(lab: Lab, host: Host) -> bool:
    try:
        run("ip", "-n", lab.namespace(host), "link", "show", "eth0")
    except LabError:
        return False
    return True


def line_pids(lab: Lab, host: Host) -> Iterator[int]:
    """Our own delay line's process, by its command."""
    mine = [b"delay.py", lab.switch.encode(), f"p{host.number}".encode()]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if len(words) > 6 and [words[3].rsplit(b"/", 1)[-1], *words[4:6]] == mine:
                yield int(path.parent.name)


def down() -> None:
    lab = load()
    remove(lab)


def remove(lab: Lab) -> None:
    """End what runs in the lab, and leave no trace of it."""
    for host in lab.hosts.values():
        for pid in line_pids(lab, host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for namespace in namespaces(lab):
        for number in (signal.SIGTERM, signal.SIGKILL):
            end_all(namespace, number)
        run("ip", "netns", "del", namespace)
    (STATE / f"{lab.name}.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        STATE.rmdir()  # unless another lab is up


def end_all(namespace: str, number: signal.Signals) -> None:
    """Send a signal to what runs there, and give it a moment to go."""
    until_s = time.monotonic() + WAIT_S
    pids = [int(pid) for pid in run("ip", "netns", "pids", namespace).split()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    while run("ip", "netns", "pids", namespace).split() and time.monotonic() < until_s:
        time.sleep(0.02)


# -- what goes wrong ------------------------------------------------------------------------------


def shape(lab: Lab, host: Host) -> None:
    """Put rate, loss and delay in force, as the kernel can."""
    namespace = lab.namespace(host)
    for where, device in ((namespace, "eth0"), (lab.switch, f"p{host.number}")):
        with contextlib.suppress(LabError):  # there is none
            inside(where, "tc", "qdisc", "del", "dev", device, "root")
        if words := qdisc(host, has_netem=lab.has_netem):
            inside(where, "tc", "qdisc", "add", "dev", device, "root", *words)
    inside(namespace, "nft", "-f", "-", text=losses(host))


def qdisc(host: Host, *, has_netem: bool) -> list[str]:
    """Words for tc; empty where the way is as the kernel made it."""
    words: list[str] = []
    if has_netem and (host.delay_ms or host.jitter_ms):
        words = ["netem", "delay", f"{host.delay_ms + host.jitter_ms / 2:g}ms"]
        words += [f"{host.jitter_ms / 2:g}ms"] if host.jitter_ms else []
        words += ["rate", f"{host.rate_mbit:g}mbit"] if host.rate_mbit else []
    elif host.rate_mbit:
        words = ["tbf", "rate", f"{host.rate_mbit:g}mbit", "burst", "256kb", "latency", "100ms"]
    return words


def losses(host: Host) -> str:
    """Rules for nft, in place of those before: each packet that comes in draws a number."""
    rules = ["flush chain inet loss inwards"]
    if per_10000 := round(host.loss_percent * 100):
        share = f"numgen random mod 10000 < {per_10000} " if per_10000 < 10_000 else ""
        rules.append(f"add rule inet loss inwards iifname eth0 {share}drop")
    return "\n".join(rules) + "\n"


def cut(groups: Sequence[str], *, one_way: bool) -> None:
    """Let nothing pass between the groups, or from the first to the second; all at once."""
    lab = load()
    sides = [[lab.host(name) for name in group.split(",")] for group in groups]
    if len(sides) < 2:
        raise LabError("a cut needs two groups, such as: cut h1,h2 h3,h4")
    named = [host.name for side in sides for host in side]
    if len(set(named)) < len(named):
        raise LabError("a host stands in two groups")
    pairs = [
        f"{lab.address(host)} . {lab.address(other)}"
        for at, side in enumerate(sides)
        for beside, others in enumerate(sides)
        if (at < beside if one_way else at != beside)
        for host in side
        for other in others
    ]
    rules = f"{HEAL}\nadd element bridge cut pairs {{ {', '.join(pairs)} }}\n"
    inside(lab.switch, "nft", "-f", "-", text=rules)


def heal() -> None:
    inside(load().switch, "nft", "-f", "-", text=f"{HEAL}\n")


def link(name: str, state: str) -> None:
    lab = load()
    run("ip", "-n", lab.namespace(lab.host(name)), "link", "set", "eth0", state)


def change(name: str, **values: float) -> None:
    """Another rate, loss or delay of one host from now on."""
    lab = load()
    old = lab.host(name)
    new = replace(old, **values)
    moved = (old.delay_ms, old.jitter_ms) != (new.delay_ms, new.jitter_ms)
    save(replace(lab, hosts={**lab.hosts, name: new}))
    if moved and not lab.has_netem:
        unplug(lab, old)
        plug(lab, new, ipaddress.ip_network(lab.net).prefixlen)
    shape(lab, new)


def execute(name: str, words: Sequence[str]) -> None:
    """Become a command on that host."""
    lab = load()
    os.execvp("ip", ["ip", "netns", "exec", lab.namespace(lab.host(name)), *words])


def show() -> None:
    lab = load()
    for host in lab.hosts.values():
        rate = f"{host.rate_mbit:g} Mbit/s" if host.rate_mbit else "full rate"
        print(
            f"{host.name:<12} {lab.address(host):<15} {rate}, loss {host.loss_percent:g} %, "
            f"delay {host.delay_ms:g} ms, jitter {host.jitter_ms:g} ms"
        )
    print(inside(lab.switch, "nft", "list", "set", "bridge", "cut", "pairs").strip())


# -- the command line -----------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="deploy/lab", description=__doc__.splitlines()[0])
    commands = made.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="build the lab of a file").add_argument("file", type=Path)
    commands.add_parser("down", help="end what runs in it and remove every trace")
    cutting = commands.add_parser("cut", help="drop what passes between groups: cut a,b c,d")
    cutting.add_argument("groups", nargs="+", metavar="HOST,HOST")
    cutting.add_argument("--one-way", action="store_true", help="from each to those after it only")
    commands.add_parser("heal", help="end every cut")
    linking = commands.add_parser("link", help="pull a host's plug, or put it back")
    linking.add_argument("host")
    linking.add_argument("state", choices=("up", "down"))
    for name, unit in (("rate", "MBIT"), ("loss", "PERCENT"), ("delay", "MS")):
        setting = commands.add_parser(name, help=f"of one host, in {unit.lower()}; 0 ends it")
        setting.add_argument("host")
        setting.add_argument("value", type=float, metavar=unit)
        if name == "delay":
            setting.add_argument("jitter", type=float, nargs="?", default=0.0, metavar="JITTER_MS")
    running = commands.add_parser("exec", help="run a command on a host")
    running.add_argument("host")
    running.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    commands.add_parser("show", help="the hosts, and what is in force")
    return made


def obey(asked: argparse.Namespace) -> None:
    match asked.command:
        case "up":
            up(asked.file)
        case "down":
            down()
        case "cut":
            cut(asked.groups, one_way=asked.one_way)
        case "heal":
            heal()
        case "link":
            link(asked.host, asked.state)
        case "rate":
            change(asked.host, rate_mbit=asked.value)
        case "loss":
            change(asked.host, loss_percent=asked.value)
        case "delay":
            change(asked.host, delay_ms=asked.value, jitter_ms=asked.jitter)
        case "exec":
            execute(asked.host, asked.words)
        case _:
            show()


def main() -> int:
    asked = parser().parse_args()
    try:
        if os.geteuid() != 0:
            raise LabError("the lab needs root: namespaces are the kernel's")
        obey(asked)
    except LabError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

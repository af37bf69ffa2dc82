"""A coordinator and peers as real processes through the real commands, and who types them.

Everything that a process says goes to files, so that nobody waits for a reader; a test waits for
what it wants to see there, with a bound.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT
from time import monotonic, sleep
from typing import Any, TypeVar

import psutil

from tests.leaks import census
from tests.unit.training.classroom import write_digits

__all__ = ["LOOPBACK", "Happening", "Process", "User", "Village", "village"]

T = TypeVar("T")
Happening = Mapping[str, Any]  # one line of --json

LOOPBACK = ("--bind", "127.0.0.1:0")
PATIENCE_S = 90.0  # for what takes seconds on a quiet machine; only a failure waits so long
LOOK_EVERY_S = 0.02


class Process:
    """One running command, and what it has said so far."""

    def __init__(
        self, argv: Sequence[str], *, said: Path, cwd: Path, environ: Mapping[str, str]
    ) -> None:
        self.name = said.name
        self._out, self._err = said.with_suffix(".out"), said.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._process.poll()

    def trainer(self) -> psutil.Process:
        """The process in which this peer trains."""
        (child,) = psutil.Process(self.pid).children()
        return child

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """As Ctrl-C on a terminal does: to this process and all that it has started."""
        os.killpg(self.pid, number)

    def end(self, within_s: float = PATIENCE_S) -> int:
        """Wait until it ends by itself; its exit code."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} runs on after {within_s:.0f} s:\n{self.err}"
            ) from None

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.send_signal(SIGCONT)
            self._process.kill()
        self._process.wait()

    # -- what it said ------------------------------------------------------------------------

    def happenings(self, event: str = "") -> list[Happening]:
        """The lines of --json so far, or those of one event."""
        whole, _, _torn = self._out.read_bytes().rpartition(b"\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if event in ("", line["event"])]

    def rounds(self) -> dict[int, Happening]:
        return {line["round"]: line for line in self.happenings("round")}

    def said(self, event: str, **fields: object) -> bool:
        """Has it told an event with these fields?"""
        return any(fields.items() <= line.items() for line in self.happenings(event))

    def wait_for(self, what: str, seen: Callable[[], T], within_s: float = PATIENCE_S) -> T:
        """Wait until `seen` gives something true; a failure says `what` and its last words."""
        until_s = monotonic() + within_s
        while not (found := seen()):
            ended = self.code is not None
            if (ended or monotonic() > until_s) and not (found := seen()):
                state = f"ended with {self.code}" if ended else f"{within_s:.0f} s have passed"
                raise AssertionError(
                    f"{self.name}: no {what}, {state}:\n{self.err}{self.out[-2000:]}"
                )
            if not found:
                sleep(LOOK_EVERY_S)
        return found

    def wait_for_event(self, event: str, **fields: object) -> None:
        self.wait_for(f"{event} {fields or ''}", lambda: self.said(event, **fields))

    def wait_for_round(self, number: int) -> None:
        """Wait until it has finished this round or a later one."""
        self.wait_for(f"round {number}", lambda: max(self.rounds(), default=0) >= number)

    def errors(self) -> list[str]:
        """The lines that tell an error; a traceback is none of them and fails."""
        assert "Traceback" not in self.err + self.out, self.err
        return [line for line in self.err.splitlines() if line.startswith("Error:")]


class User:
    """A person on this machine: a home of Kinfolk, and a folder to type in."""

    def __init__(self, root: Path, shards: Path, **environ: str) -> None:
        self.home = root / "home"
        self.cwd = root / "work"
        self.cwd.mkdir(parents=True)
        self._said = root / "said"
        self._said.mkdir()
        self.prefix: tuple[str, ...] = ()  # of each command, e.g. to run it in a namespace
        clean = {k: v for k, v in os.environ.items() if not k.startswith("KINFOLK_")}
        self.environ = {
            **clean,
            "KINFOLK_HOME": str(self.home),
            "KINFOLK_DATA": str(shards),
            "COLUMNS": "100",
            **environ,
        }
        self.running: list[Process] = []

    def type(self, *words: str, said: str = "") -> Process:
        """Start `peer ...` or `coordinator ...`."""
        return self.python("-m", *words, said=said or words[0])

    def python(self, *words: str, said: str = "python") -> Process:
        process = Process(
            [*self.prefix, sys.executable, *words],
            said=self._said / f"{len(self.running)}-{said}",
            cwd=self.cwd,
            environ=self.environ,
        )
        self.running.append(process)
        return process

    def coordinator(self, *options: str, founders: int, **pinned: object) -> Process:
        """Start one and wait until it has printed its join string."""
        lines = [f"--option={key.replace('__', '.')}={value}" for key, value in pinned.items()]
        process = self.type(
            "coordinator", "start", f"--founders={founders}", *lines, *options, said="coordinator"
        )
        process.wait_for("join string", lambda: process.out.endswith("\n"))
        return process

    def peer(self, name: str, *options: str) -> Process:
        """Start one that tells in JSON; one thread, because two cores train them all."""
        return self.type(
            *("peer", "start", f"--data={name}", "--gpu=cpu", "--threads=1", "--json"),
            *(options or LOOPBACK),
            said=name,
        )


class Village:
    """Users that share a machine and a folder of shards."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.shards = root / "shards"
        self.shards.mkdir(parents=True)
        self.users: list[User] = []

    def user(self, **environ: str) -> User:
        user = User(self._root / f"user{len(self.users)}", self.shards, **environ)
        self.users.append(user)
        return user

    def deal(self, names: Iterable[str]) -> None:
        """Make a shard of 64 digits for each name, none of which another one has."""
        for number, name in enumerate(names):
            write_digits(self.shards / f"{name}.npz", first=200 * number, num=64)

    def end(self) -> None:
        for user in self.users:
            for process in user.running:
                process.kill()


@contextmanager
def village(root: Path) -> Iterator[Village]:
    """Open one, and leave no process behind."""
    before = census().children
    opened = Village(root)
    try:
        yield opened
    finally:
        opened.end()
    assert census().children == before

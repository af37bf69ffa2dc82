"""A real coordinator process, and nodes that visit it over real sockets."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM
from time import monotonic
from typing import TypeVar

from protocol.joinstring import JoinString
from protocol.manifest import Manifest
from protocol.transport.base import Caller, CallerEvent, Poller
from protocol.transport.keys import new_identity
from protocol.transport.zeromq import ZeroMq
from protocol.wire.codec import COORDINATOR
from protocol.wire.membership import Membership, Patience
from protocol.wire.membership_effects import Effect, Send, Settled, Unsettled, WakeAt
from protocol.wire.messages import WIRE_VERSION, Join

E = TypeVar("E")

WHOLE = Manifest({"run.rounds": 3, "solver.lr": 0.05})
WITHIN_S = 20.0  # a bound for what takes milliseconds; only a failure waits so long
COMMAND = (sys.executable, "-c", "from coordinator.cli import main; main()")


class Coordinator:
    """A process of `coordinator start`, with its own home."""

    def __init__(self, home: Path, *options: str, stderr: int = subprocess.PIPE) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "start", *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "KINFOLK_HOME": str(home)},
        )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def line_with(self, text: str) -> str:
        """Read on in stderr to the line that has this."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if text in line)

    def stop(self, number: int = SIGTERM) -> tuple[int, str, str]:
        """Exit code, and the rest of stdout and stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, out, err


@contextmanager
def started(
    home: Path, *options: str, stderr: int = subprocess.PIPE
) -> Iterator[tuple[Coordinator, JoinString]]:
    coordinator = Coordinator(home, *options, stderr=stderr)
    try:
        yield coordinator, JoinString.parse(coordinator.first_line())
    finally:
        coordinator.process.kill()
        coordinator.process.communicate(timeout=WITHIN_S)


def command(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, "KINFOLK_HOME": str(home)},
    )


class Host:
    """A node's keys and its sockets."""

    def __init__(self) -> None:
        self.identity = new_identity()
        self.transport = ZeroMq(
            public_key=self.identity.curve_public, secret_key=self.identity.curve_secret
        )

    def visit(
        self,
        join: JoinString,
        name: str,
        *,
        patience: Patience | None = None,
        server_key: bytes | None = None,
    ) -> "Visitor":
        message = Join(
            version=WIRE_VERSION,
            token=join.token,
            name=name,
            role="peer",
            instance=os.urandom(8),
            address="tcp://127.0.0.1:4000",
            sign_key=self.identity.sign_public,
            wishes=(),
        )
        caller = self.transport.call(join.address, server_key=server_key or join.curve_key)
        machine = Membership(message, sign_key=join.sign_key, where=join.address, patience=patience)
        return Visitor(name, machine, caller, self.transport.poller())


class Visitor:
    """The node's membership over ZeroMQ, without the rest of a peer."""

    def __init__(self, name: str, machine: Membership, caller: Caller, poller: Poller) -> None:
        self.name = name
        self.machine = machine
        self.told: list[Effect] = []
        self._caller = caller
        self._poller = poller
        self._poller.add(caller)
        self._wake_at_s = 0.0
        self.carry_out(machine.start(monotonic()))

    @property
    def state(self) -> str:
        """What the coordinator says of it."""
        view = self.machine.view
        mine = [m.state for m in view.members if m.name == self.name] if view else []
        return mine[0] if mine else ""

    def get_ready(self) -> None:
        """Join, settle the manifest if nobody has, and be ready."""
        self.until(lambda: any(isinstance(e, Unsettled | Settled) for e in self.told))
        self.carry_out(self.machine.settle(WHOLE, monotonic()))
        self.until_told(Settled)
        self.carry_out(self.machine.ready(b"s" * 32, b"i" * 32, monotonic()))
        self.until(lambda: self.state == "ready")

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Send(message):
                    self._caller.send(COORDINATOR.encode(message))
                case WakeAt(at_s):
                    self._wake_at_s = at_s
                case _:
                    self.told.append(effect)

    def until(self, is_met: Callable[[], bool]) -> None:
        """Live on until this is so."""
        end_s = monotonic() + WITHIN_S
        while not is_met():
            assert monotonic() < end_s, self.told
            self._poller.poll(max(0.0, min(self._wake_at_s, end_s) - monotonic()))
            while (got := self._caller.receive()) is not None:
                self._hear(got)
            if monotonic() >= self._wake_at_s:
                self._wake_at_s = end_s
                self.carry_out(self.machine.wake(monotonic()))

    def until_told(self, kind: type[E]) -> E:
        """Live on until the machine tells this."""

        def found() -> list[E]:
            return [effect for effect in self.told if isinstance(effect, kind)]

        self.until(lambda: bool(found()))
        return found()[-1]

    def _hear(self, got: bytes | tuple[bytes, int] | CallerEvent) -> None:
        now_s = monotonic()
        if got is CallerEvent.CONNECTED:
            self.carry_out(self.machine.connected(now_s))
        elif isinstance(got, CallerEvent):
            self.carry_out(self.machine.disconnected(now_s))
        elif isinstance(got, bytes):
            self.carry_out(self.machine.receive(got, now_s))

"""The trainer process: reads commands from its node, carries them out, answers. The only loop here.

Run as `python -m peer.worker FD`, where FD is the inherited end of the node's socket pair. It lives
exactly as long as its node: the end of the pipe ends it, and so does the node's death.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import assert_never

from peer.faults.disk import watch_disk
from peer.lifeline import die_with_parent
from peer.pipe import Pipe
from peer.relay_trainer import RelayTrainer
from peer.roles import Role
from peer.trainer import Trainer
from peer.work import (
    Adopt,
    Alone,
    Command,
    Evaluate,
    Failed,
    Inspect,
    Mix,
    Prepare,
    Publish,
    Quit,
    Reply,
    Train,
    Working,
)
from protocol.errors import KinfolkError, OperatorError
from protocol.wire.fields import as_text

__all__ = ["main"]

TELL_EVERY_S = 0.25  # at most one sign of life in that time

_log = logging.getLogger(__name__)


class _Teller:
    """Turns the steps of a command into signs of life, sparsely."""

    def __init__(self, send: Callable[[Reply], None]) -> None:
        self._send = send
        self._phase, self._round_no = "prepare", 0
        self._slowness = 1.0
        self._began_s = self._told_s = self._stepped_s = time.monotonic()

    def begin(self, phase: str, round_no: int, *, slowness: float = 1.0) -> None:
        """Begin a command; each of its steps is to take so many times longer than it does."""
        self._phase, self._round_no, self._slowness = phase, round_no, slowness
        self._began_s = self._told_s = self._stepped_s = time.monotonic()

    def __call__(self, done: int, planned: int) -> None:
        if self._slowness > 1.0:
            took_s = time.monotonic() - self._stepped_s
            time.sleep(took_s * (self._slowness - 1.0))
            self._stepped_s = time.monotonic()
        now_s = time.monotonic()
        if now_s - self._told_s < TELL_EVERY_S:
            return
        self._told_s = now_s
        fraction = min(max(done / max(planned, 1), 0.0), 1.0)
        eta_s = (now_s - self._began_s) * (1.0 - fraction) / fraction if fraction > 0.0 else 0.0
        self._send(Working(self._phase, self._round_no, fraction, min(eta_s, 1e7)))


def _phase(command: Command) -> tuple[str, int]:
    """What a command is called in a sign of life, and of which round it is."""
    match command:
        case Mix(round_no) | Train(round_no) | Evaluate(round_no) | Publish(round_no):
            return type(command).__name__.lower(), round_no
        case Prepare() | Inspect() | Adopt() | Alone() | Quit():
            return type(command).__name__.lower(), 0
        case _:
            assert_never(command)


def _serve(pipe: Pipe) -> None:
    trainer: Trainer | RelayTrainer = Trainer()
    tell = _Teller(pipe.send)
    while True:
        command = pipe.receive(None)
        if command is None:
            continue
        if not isinstance(command, Command):
            raise TypeError(f"{type(command).__name__} is not a command")
        if isinstance(command, Prepare) and command.role == Role.RELAY:
            trainer = RelayTrainer()
        slowness = command.slowness if isinstance(command, Train) else 1.0
        tell.begin(*_phase(command), slowness=slowness)
        reply = trainer.carry_out(command, tell)
        if reply is None:
            return
        pipe.send(reply)


def main(fd: int) -> int:
    """Serve the node at the other end of `fd` until it says Quit or ends."""
    die_with_parent()
    watch_disk(os.environ)
    logging.basicConfig(level=os.environ.get("KINFOLK_LOG", "INFO"), format="%(message)s")
    with Pipe(socket.socket(fileno=fd)) as pipe:
        try:
            _serve(pipe)
        except (EOFError, BrokenPipeError):
            return 0
        except OperatorError as error:
            pipe.send(Failed(as_text(error), operator=True))
        except KinfolkError as error:
            _log.exception("the trainer cannot go on")
            pipe.send(Failed(as_text(error), operator=False))
        except OSError as error:
            _log.exception("the trainer cannot go on")
            pipe.send(Failed(as_text(_refusal(error)), operator=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the node must hear of it
            _log.exception("the trainer failed")
            pipe.send(Failed(as_text(f"{type(error).__name__}: {error}"), operator=False))
        else:
            return 0
    return 1


def _refusal(error: OSError) -> str:
    """What the system said, without its number."""
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    logging.shutdown()
    os._exit(code)  # all is on disk, and an interpreter takes a second to take torch apart

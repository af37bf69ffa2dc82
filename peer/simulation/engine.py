"""Who computes what the simulated trainers are told: this process, one command after another."""

from collections.abc import Callable
from typing import Protocol

from peer.trainer import Trainer
from peer.work import Command, Reply
from protocol.errors import LocalProtocolError
from protocol.ids import PeerId

__all__ = ["Engine", "InProcess", "Pending"]

Pending = Callable[[], Reply]  # the answer, once it is needed


class Engine(Protocol):
    def submit(self, peer: PeerId, command: Command) -> Pending:
        """Begin a command of this peer's trainer; those of one peer are done in order."""

    def forget(self, peer: PeerId) -> None:
        """This peer's trainer is gone, with all that it remembers."""

    def close(self) -> None: ...


class InProcess:
    """One trainer for each peer, here."""

    def __init__(self) -> None:
        self._trainers: dict[PeerId, Trainer] = {}

    def submit(self, peer: PeerId, command: Command) -> Pending:
        trainer = self._trainers.setdefault(peer, Trainer())
        reply = trainer.carry_out(command, _silent)
        if reply is None:
            raise LocalProtocolError("a simulated trainer is forgotten, not told to quit")
        return lambda: reply

    def forget(self, peer: PeerId) -> None:
        self._trainers.pop(peer, None)

    def close(self) -> None:
        self._trainers.clear()


def _silent(done: int, planned: int) -> None:
    """Virtual time has no progress to tell."""

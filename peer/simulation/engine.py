"""Who computes what the simulated trainers are told: this process, one command after another."""

from collections.abc import Callable
from typing import Protocol

from peer.relay_trainer import RelayTrainer
from peer.roles import Role
from peer.trainer import Trainer
from peer.work import Command, Prepare, Reply
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
    """One trainer for each peer or relay, here."""

    def __init__(self) -> None:
        self._trainers: dict[PeerId, Trainer | RelayTrainer] = {}

    def submit(self, peer: PeerId, command: Command) -> Pending:
        if isinstance(command, Prepare):
            relay = command.role is Role.RELAY
            self._trainers[peer] = RelayTrainer() if relay else Trainer()
        reply = self._trainers[peer].carry_out(command, _silent)
        if reply is None:
            raise LocalProtocolError("a simulated trainer is forgotten, not told to quit")
        return lambda: reply

    def forget(self, peer: PeerId) -> None:
        self._trainers.pop(peer, None)

    def close(self) -> None:
        self._trainers.clear()


def _silent(done: int, planned: int) -> None:
    """Virtual time has no progress to tell."""

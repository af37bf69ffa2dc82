"""Simulated trainers in this process, one command after another."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from peer.models.pool import ModelPool
from peer.relay_trainer import RelayTrainer
from peer.roles import Role
from peer.simulation.engine import Pending
from peer.simulation.heap import own_pages
from peer.trainer import Trainer
from peer.work import Command, Failed, Prepare, Reply, Train
from protocol.errors import KinfolkError, LocalProtocolError, OperatorError
from protocol.ids import PeerId
from protocol.wire.fields import as_text

__all__ = ["InProcess", "one_thread"]


class InProcess:
    """One trainer for each peer; they share models and initial points.

    Training is put off until its result is asked for: its peer holds two models from then on.
    """

    def __init__(self) -> None:
        own_pages()
        self._pool = ModelPool()
        self._trainers: dict[PeerId, Trainer | RelayTrainer] = {}
        self._put_off: dict[PeerId, Pending] = {}

    def submit(self, peer: PeerId, command: Command) -> Pending:
        if (before := self._put_off.pop(peer, None)) is not None:
            before()
        if isinstance(command, Train) and peer in self._trainers:
            self._put_off[peer] = cache(lambda: self._answer(peer, command))
            return self._put_off[peer]
        reply = self._answer(peer, command)
        return lambda: reply

    def _answer(self, peer: PeerId, command: Command) -> Reply:
        if isinstance(command, Prepare):
            is_relay = command.role == Role.RELAY
            self._trainers[peer] = RelayTrainer() if is_relay else Trainer(self._pool)
        if peer not in self._trainers:
            raise LocalProtocolError(f"{peer} was given work before Prepare")
        try:
            reply = self._trainers[peer].carry_out(command, _silent)
        except OperatorError as error:
            return Failed(as_text(error), operator=True)
        except (KinfolkError, OSError) as error:
            return Failed(as_text(error), operator=isinstance(error, OSError))
        if reply is None:
            raise LocalProtocolError("a simulated trainer is forgotten, not told to quit")
        return reply

    def forget(self, peer: PeerId) -> None:
        self._put_off.pop(peer, None)
        self._trainers.pop(peer, None)

    def close(self) -> None:
        self._put_off.clear()
        self._trainers.clear()


def _silent(done: int, planned: int) -> None:
    """Virtual time has no progress to tell."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, as a launched peer does where cores are shared: equal bytes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

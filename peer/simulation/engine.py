"""Who computes what the simulated trainers are told. No torch here: it may be other processes."""

from collections.abc import Callable
from typing import Protocol

from peer.work import Command, Reply
from protocol.ids import PeerId

__all__ = ["Engine", "Pending"]

Pending = Callable[[], Reply]  # the answer, once it is needed


class Engine(Protocol):
    def submit(self, peer: PeerId, command: Command) -> Pending:
        """Begin a command of this peer's trainer; those of one peer are done in order.

        What a peer's own shard, options or disk make impossible is answered by `Failed`.
        """

    def forget(self, peer: PeerId) -> None:
        """This peer's trainer is gone, with all that it remembers."""

    def close(self) -> None: ...

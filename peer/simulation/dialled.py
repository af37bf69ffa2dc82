"""The connections that simulated peers have dialled, and which of them are up."""

from protocol.ids import PeerId

__all__ = ["Dialled"]


class Dialled:
    """By who answers, then by who asks: whether it is connected."""

    def __init__(self) -> None:
        self._ways: dict[PeerId, dict[PeerId, bool]] = {}

    def is_up(self, asker: PeerId, answerer: PeerId) -> bool | None:
        """None: it was never dialled, or who did is gone."""
        return self._ways.get(answerer, {}).get(asker)

    def put(self, asker: PeerId, answerer: PeerId, *, is_up: bool) -> None:
        self._ways.setdefault(answerer, {})[asker] = is_up

    def waiting(self, answerer: PeerId) -> tuple[PeerId, ...]:
        """Who has dialled this peer and is not through, in the order in which they dialled."""
        return tuple(asker for asker, is_up in self._ways.get(answerer, {}).items() if not is_up)

    def broken_by(self, name: PeerId) -> tuple[PeerId, ...]:
        """A peer was killed: who was connected to it, in the order in which they dialled.

        Whoever calls it goes on trying, for it comes back to the same address; its own calls end.
        """
        for askers in self._ways.values():
            askers.pop(name, None)
        callers = self._ways.get(name, {})
        broken = tuple(asker for asker, is_up in callers.items() if is_up)
        callers.update(dict.fromkeys(callers, False))
        return broken

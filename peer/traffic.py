"""How many bytes of parameters came from each neighbour and went to each, round by round."""

from collections import Counter
from collections.abc import Mapping

from protocol.ids import PeerId

__all__ = ["Traffic"]


class Traffic:
    """Counts until it is taken."""

    def __init__(self) -> None:
        self._pulled: Counter[PeerId] = Counter()
        self._sent: Counter[PeerId] = Counter()

    def pulled(self, neighbour: PeerId, num_bytes: int) -> None:
        self._pulled[neighbour] += num_bytes

    def sent(self, neighbour: PeerId, num_bytes: int) -> None:
        self._sent[neighbour] += num_bytes

    def take(self) -> tuple[Mapping[PeerId, int], Mapping[PeerId, int]]:
        """What came and what went since it was last taken, by neighbour, in order of name."""
        taken = dict(sorted(self._pulled.items())), dict(sorted(self._sent.items()))
        self._pulled.clear()
        self._sent.clear()
        return taken

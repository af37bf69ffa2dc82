"""What a node is in a run, and whom its rounds need. Names only."""

from enum import StrEnum

__all__ = ["Exchange", "Role", "exchange_of"]


class Role(StrEnum):
    PEER = "peer"
    RELAY = "relay"


class Exchange(StrEnum):
    """Whom a node asks in a round, by its method."""

    NONE = "none"  # nobody: the method shares nothing
    NEIGHBOURS = "neighbours"  # those of the topology; a relay is one more, never waited for
    COMMON = "common"  # the relay where there is one, else everybody: one model for all
    RELAY = "relay"  # the relay and nobody else
    RESULTS = "results"  # a relay's own: every peer's result
    UPDATES = "updates"  # a relay's own: every peer's update, whatever it started from

    @property
    def serves(self) -> bool:
        """A relay's own: it collects this round's results, a peer those of the round before."""
        return self in {Exchange.RESULTS, Exchange.UPDATES}

    @property
    def mixes_stale(self) -> bool:
        """What is late still counts; not where results are combined from one common start."""
        return self is Exchange.NEIGHBOURS


_BY_MIXER = {"local": Exchange.NONE, "relay": Exchange.RELAY, "replicated": Exchange.COMMON}


def exchange_of(mixer: str) -> Exchange:
    """Whom a peer's rounds need, by the name of its mixer."""
    return _BY_MIXER.get(mixer, Exchange.NEIGHBOURS)

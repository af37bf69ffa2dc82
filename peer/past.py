"""What a run left behind in its directory, peer by peer: read back for results and pictures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from peer.affinity import Affinity, affinity
from peer.influence import Influence, read_influence
from peer.ledger import EVENTS, INFLUENCE, Event, read_events
from peer.roles import Role
from protocol.errors import DataError

__all__ = ["PastPeer", "past_affinity", "read_past"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PastPeer:
    """One peer's run. Accuracies are on its own test split, NaN where there was none."""

    name: str
    domain: str
    camp: int
    rounds: npt.NDArray[np.int64]  # (R,) those that it finished, in order
    mixed: Floats  # (R,) of the start that the mixer made
    trained: Floats  # (R,) of the result of the local training
    alone: Mapping[str, float]  # by solver: "sgd", "same"; empty where not trained
    influence: Influence | None  # None where the mixer weighs nobody


def read_past(directory: Path) -> tuple[PastPeer, ...]:
    """Read every peer of a run directory, in order of name; relays have nothing to draw.

    Raises:
        DataError: a file of it is torn or of another version, or no peer has started there.
    """
    folders = sorted(path.parent for path in directory.glob(f"*/{EVENTS}"))
    peers = [_read_peer(folder) for folder in folders]
    if not any(peers):
        raise DataError(f"{directory} is not a run directory: no peer has started in it")
    return tuple(peer for peer in peers if peer)


def past_affinity(peers: tuple[PastPeer, ...]) -> Affinity:
    """Say who was helped by whom, among the peers whose mixer weighs its neighbours."""
    weighed = {peer.name: peer for peer in peers if peer.influence and peer.influence.peers}
    return affinity(
        {name: peer.influence.relative() for name, peer in weighed.items() if peer.influence},
        {name: peer.camp for name, peer in weighed.items()},
        {name: peer.domain for name, peer in weighed.items()},
    )


def _read_peer(folder: Path) -> PastPeer | None:
    """Read what came after the last start; None where there is none, and for a relay."""
    events = read_events(folder / EVENTS)
    starts = [at for at, event in enumerate(events) if event.name == "started"]
    if not starts:
        return None
    started, *rest = events[starts[-1] :]
    if started.fields.get("role") == Role.RELAY:
        return None
    rounds = [event for event in rest if event.name == "round"]
    influence = folder / INFLUENCE
    try:
        return PastPeer(
            name=str(started.fields["peer"]),
            domain=str(started.fields["domain"]),
            camp=int(_number(started, "camp")),
            rounds=np.array([_number(event, "round") for event in rounds], dtype=np.int64),
            mixed=np.array([_accuracy(event.fields["mixed"]) for event in rounds]),
            trained=np.array([_accuracy(event.fields["trained"]) for event in rounds]),
            alone={
                str(event.fields["solver"]): _accuracy(event.fields)
                for event in rest
                if event.name == "alone"
            },
            influence=read_influence(influence) if influence.exists() else None,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:  # int of an infinity
        raise DataError(f"{folder / EVENTS} lacks what this Kinfolk reads: {error}") from None


def _number(event: Event, key: str) -> float:
    value = event.fields[key]
    if not isinstance(value, int | float):
        raise TypeError(f"{event.name}: {key} is {value!r:.40}")
    return value


def _accuracy(scores: object) -> float:
    if not isinstance(scores, Mapping):
        return math.nan
    value = scores["test_accuracy"]
    return math.nan if value is None else float(value)

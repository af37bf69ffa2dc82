"""How much each neighbour weighed in one peer's mixes, round by round: `influence.npz`.

Must not know camps and domains; `peer/affinity.py` compares peers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from peer.data.archive import opened, write_archive
from peer.record import RoundRecord
from protocol.errors import DataError

__all__ = ["Influence", "read_influence", "tabulate", "write_influence"]

Floats = npt.NDArray[np.float64]

SETTLED = 0.5  # the share of the rounds, counted from the end, that conclusions are drawn from


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """Arrays of R rounds, M peers (names sorted) and C classes; NaN where a peer was absent."""

    rounds: npt.NDArray[np.int64]  # (R,)
    peers: tuple[str, ...]  # M; the own name among them
    client_weight: Floats  # (R, M) lambda, rows sum to 1
    class_weight: Floats  # (R, M, C) Lambda
    client_loss: Floats  # (R, M) leave-one-out, nats

    def __post_init__(self) -> None:
        shape = (len(self.rounds), len(self.peers))
        losses, classes = self.client_loss.shape, self.class_weight.shape
        if not self.client_weight.shape == losses == classes[:2] == shape or len(classes) != 3:
            raise DataError(
                f"{shape[0]} rounds and {shape[1]} peers do not fit weights of shape "
                f"{self.client_weight.shape} and {classes}, losses of shape {losses}"
            )

    def relative(self, *, last: float = SETTLED) -> Mapping[str, float]:
        """Average M x lambda of each peer over the last share of the rounds.

        M is the number of peers in that round's mix, so 1 says "no more and no less than its
        share" whoever else was there. Rounds in which a peer was absent do not count for it; a peer
        that was never there has no entry.

        Args:
            last: in (0, 1]; at least one round is taken.
        """
        num_rounds = len(self.rounds)
        weights = self.client_weight[num_rounds - max(1, round(last * num_rounds)) :]
        present = np.isfinite(weights)  # (rounds, M)
        scaled = np.where(present, weights, 0.0) * present.sum(axis=1, keepdims=True)
        return {
            peer: float(scaled[:, column].sum() / present[:, column].sum())
            for column, peer in enumerate(self.peers)
            if present[:, column].any()
        }

    def helped_most_by(self, own: str) -> str | None:
        """Name the neighbour with the most weight over the last half; None without neighbours."""
        others = {peer: weight for peer, weight in self.relative().items() if peer != own}
        return min(others, key=lambda peer: (-others[peer], peer)) if others else None


def tabulate(records: Sequence[RoundRecord]) -> Influence:
    """Lay what a mixer said in each round out as arrays, in the order given."""
    peers = sorted({weights.sender for record in records for weights in record.weights})
    columns = {peer: column for column, peer in enumerate(peers)}
    num_classes = max((len(w.class_weight) for r in records for w in r.weights), default=0)
    shape = (len(records), len(peers))
    client_weight, client_loss = np.full(shape, np.nan), np.full(shape, np.nan)
    class_weight = np.full((*shape, num_classes), np.nan)
    for row, record in enumerate(records):
        for weights in record.weights:
            column = columns[weights.sender]
            if weights.client_weight >= 0.0:  # negative: the mixer said nothing
                client_weight[row, column] = weights.client_weight
            if weights.client_loss >= 0.0:
                client_loss[row, column] = weights.client_loss
            class_weight[row, column, : len(weights.class_weight)] = weights.class_weight
    rounds = np.array([record.round_no for record in records], dtype=np.int64)
    return Influence(rounds, tuple(peers), client_weight, class_weight, client_loss)


def write_influence(path: Path, influence: Influence, *, sync: bool = True) -> None:
    """Write it whole or not at all, with `sync` whatever happens to the power.

    Raises:
        DataError: the file cannot be written.
    """
    write_archive(
        path,
        {
            "rounds": influence.rounds,
            "peers": np.array(influence.peers, dtype=np.str_),
            "client_weight": influence.client_weight,
            "class_weight": influence.class_weight,
            "client_loss": influence.client_loss,
        },
        sync=sync,
    )


# array -> the kind of its dtype
_KINDS = {
    "rounds": "i",
    "peers": "U",
    "client_weight": "f",
    "class_weight": "f",
    "client_loss": "f",
}


def read_influence(path: Path) -> Influence:
    """Read what `write_influence` wrote.

    Raises:
        DataError: no such file, torn, or its arrays do not fit together.
    """
    with opened(path) as archive:
        if set(archive.names) != set(_KINDS):
            raise DataError(f"{path} holds {', '.join(archive.names)}, not {', '.join(_KINDS)}")
        arrays = {name: archive.array(name) for name in _KINDS}
    for name, kind in _KINDS.items():
        if arrays[name].dtype.kind != kind:
            raise DataError(f"{path}: {name} is of type {arrays[name].dtype}")
    peers = tuple(str(peer) for peer in arrays.pop("peers").reshape(-1))
    try:
        return Influence(peers=peers, **arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None

"""What a mixer or aggregator said of a round, as a reply to the node."""

import math
from collections.abc import Iterable

from peer.work import Group, MixDone, Note, Unused, Weights
from protocol.ids import PeerId
from protocol.round import Mixed
from protocol.wire.fields import as_text

__all__ = ["finite", "mix_done"]


def mix_done(round_no: int, mixed: Mixed | PeerId, seconds: float) -> MixDone:
    """Tell it; of a round that waits for the state of this peer, that alone."""
    if not isinstance(mixed, Mixed):
        return MixDone(round_no, (), (), seconds, adopt=mixed)
    return MixDone(
        round_no,
        tuple(_weights(sender, mixed) for sender in sorted(mixed.client_weight)),
        _notes(mixed.notes.items()),
        seconds,
        groups=tuple(Group(name, _notes(notes.items())) for name, notes in mixed.groups.items()),
        unused=tuple(Unused(name, as_text(why)) for name, why in sorted(mixed.unused.items())),
    )


def _notes(pairs: Iterable[tuple[str, float]]) -> tuple[Note, ...]:
    return tuple(Note(name, finite(value)) for name, value in sorted(pairs))


def _weights(sender: PeerId, mixed: Mixed) -> Weights:
    return Weights(
        sender,
        mixed.client_weight[sender],
        finite(mixed.client_loss.get(sender, -1.0)),
        mixed.class_weight.get(sender, ()),
    )


def finite(value: float) -> float:
    """A number for the record: -1 where there is none."""
    return float(value) if math.isfinite(value) else -1.0

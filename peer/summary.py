"""A peer's row of `result.json`, which it leaves as `summary.json` when it has finished."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from peer.data.archive import replacing
from peer.influence import tabulate
from peer.record import RoundRecord
from peer.work import Score
from protocol.errors import DataError
from protocol.jsontext import parse_json

__all__ = ["PeerSummary", "read_summary", "summarise", "write_summary"]

MAX_SUMMARY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSummary:
    """What one peer got from its run.

    Accuracies are on its own test split, in [0, 1]; None where there is no such split or model.
    `mixed` and `trained` are those of its last round, `own` is that of the model that it serves to
    its user; the alone models had the same budget and no neighbour.
    """

    id: str
    domain: str
    camp: int
    samples: int  # in the training split
    rounds_finished: int
    rounds_degraded: int  # of those, in how many somebody who was asked did not take part
    alone_sgd_accuracy: float | None
    alone_same_solver_accuracy: float | None
    mixed_accuracy: float | None
    trained_accuracy: float | None
    own_accuracy: float | None
    served: str  # which model `own` is: trained, personal, mixed, twin, or two with a + between
    served_rounds: Mapping[str, int]  # in how many rounds each model was the one that was served
    twin_accuracy: float | None  # of the model that is trained alone beside the shared one
    helped_most_by: str | None  # the neighbour with the most weight over the last half
    epsilon: float | None = None  # of differential privacy, spent in all; None: not private
    attack: str = ""  # how this peer harmed the others; empty: it did not

    def __post_init__(self) -> None:
        for key, kinds in _KINDS.items():
            value = getattr(self, key)
            if type(value) not in kinds:
                said = " or ".join(kind.__name__.removesuffix("Type") for kind in kinds)
                raise DataError(f"{key} is {value!r:.60}, must be {said}")
            is_share = isinstance(value, float) and key != "epsilon"
            if is_share and not 0.0 <= value <= 1.0:
                raise DataError(f"{key} is {value}, must be in [0, 1]")
            if isinstance(value, int | float) and not value >= 0:
                raise DataError(f"{key} is {value}, must be >= 0")
        for name, count in self.served_rounds.items():
            if type(count) is not int or count < 1:
                raise DataError(f"served_rounds has {count!r:.60} for {name}, must be >= 1")


_NONE = type(None)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "id": (str,),
    "domain": (str,),
    "camp": (int,),
    "samples": (int,),
    "rounds_finished": (int,),
    "rounds_degraded": (int,),
    "alone_sgd_accuracy": (float, _NONE),
    "alone_same_solver_accuracy": (float, _NONE),
    "mixed_accuracy": (float, _NONE),
    "trained_accuracy": (float, _NONE),
    "own_accuracy": (float, _NONE),
    "served": (str,),
    "served_rounds": (dict,),
    "twin_accuracy": (float, _NONE),
    "helped_most_by": (str, _NONE),
    "epsilon": (float, _NONE),
    "attack": (str,),
}


def summarise(
    records: Sequence[RoundRecord],
    *,
    peer: str,
    domain: str,
    camp: int,
    samples: int,
    alone: Mapping[str, Score],
    attack: str = "",
) -> PeerSummary:
    """Sum a finished run up.

    `records` are those of all rounds that this peer finished, in order; `samples` counts its
    training split; `alone` has a score for each solver that was asked for: "sgd", "same".
    """
    last = records[-1] if records else None
    return PeerSummary(
        id=peer,
        domain=domain,
        camp=camp,
        samples=samples,
        rounds_finished=len(records),
        rounds_degraded=sum(record.degraded for record in records),
        alone_sgd_accuracy=_accuracy(alone.get("sgd")),
        alone_same_solver_accuracy=_accuracy(alone.get("same")),
        mixed_accuracy=_accuracy(last.mixed if last else None),
        trained_accuracy=_accuracy(last.trained if last else None),
        own_accuracy=_accuracy(last.own if last else None),
        served=last.served if last else "",
        served_rounds=served_rounds(records),
        twin_accuracy=_accuracy(last.twin if last else None),
        helped_most_by=tabulate(records).helped_most_by(peer),
        epsilon=last.epsilon if last else None,
        attack=attack,
    )


def served_rounds(records: Iterable[RoundRecord]) -> dict[str, int]:
    """In how many rounds each model was the one that was served: the most frequent first."""
    return dict(Counter(record.served for record in records if record.own).most_common())


def _accuracy(score: Score | None) -> float | None:
    return None if score is None or score.test_accuracy < 0.0 else float(score.test_accuracy)


def write_summary(path: Path, summary: PeerSummary, *, sync: bool = True) -> None:
    """Write it whole or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    with replacing(path, sync=sync) as file:
        file.write(json.dumps(asdict(summary), indent=1).encode() + b"\n")


def read_summary(path: Path) -> PeerSummary:
    """Read what `write_summary` wrote.

    Raises:
        DataError: no such file, torn, a field missing, unknown, of a wrong type or out of bounds.
    """
    try:
        with path.open("rb") as file:
            raw = parse_json(file.read(MAX_SUMMARY_BYTES))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise DataError(f"{path} is torn, or not JSON") from None
    if not isinstance(raw, dict) or raw.keys() != _KINDS.keys():
        raise DataError(f"{path} is not a summary: it must have the keys {', '.join(_KINDS)}")
    try:
        return PeerSummary(**raw)
    except DataError as error:
        raise DataError(f"{path} is not a summary: {error}") from None

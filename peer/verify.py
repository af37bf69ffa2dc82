"""Did two runs learn the same? Who took part in each round first, then every tensor's digest.

Reads run directories, of a launch, a simulation, or peers started by hand; knows nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peer.ledger import EVENTS, Event, read_events
from peer.roles import Role
from protocol.errors import DataError

__all__ = ["Difference", "Verdict", "verify"]

Round = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing in which two runs differ, in the order of rounds, then peers."""

    round_no: int
    peer: str
    what: str

    def __str__(self) -> str:
        return f"round {self.round_no}, peer {self.peer}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verdict:
    peers: int
    relays: int
    rounds: int  # of one peer, at most
    snapshots: int  # compared
    first: Difference | None  # None: the same


def verify(left: Path, right: Path) -> Verdict:
    """Compare two run directories.

    Raises:
        DataError: one of them is no run directory, torn, or was written before digests were.
    """
    runs = _read(left), _read(right)
    ours, theirs = runs[0].rounds, runs[1].rounds
    compared = sum(len(ours[peer].keys() & theirs[peer].keys()) for peer in ours.keys() & theirs)
    rounds = max((len(played) for played in ours.values()), default=0)
    relays = runs[0].relays | runs[1].relays
    first = min(_differences(ours, theirs), key=lambda d: (d.round_no, d.peer), default=None)
    peers = (ours.keys() | theirs.keys()) - relays
    return Verdict(len(peers), len(relays), rounds, compared, first)


@dataclass(frozen=True, slots=True)
class _Run:
    """Rounds of every node, by number; of one that was restarted, the last word on each."""

    rounds: Mapping[str, Mapping[int, Round]]
    relays: frozenset[str]


def _read(root: Path) -> _Run:
    folders = sorted(path.parent for path in root.glob(f"*/{EVENTS}"))
    if not folders:
        raise DataError(f"{root} is not a run directory: no peer has written there")
    events = {folder: read_events(folder / EVENTS) for folder in folders}
    return _Run(
        {folder.name: _rounds(told, folder) for folder, told in events.items()},
        frozenset(folder.name for folder, told in events.items() if _is_relay(told)),
    )


def _is_relay(events: Sequence[Event]) -> bool:
    return any(e.name == "started" and e.fields.get("role") == Role.RELAY for e in events)


def _rounds(events: Sequence[Event], folder: Path) -> dict[int, Round]:
    rounds: dict[int, Round] = {}
    for event in events:
        if event.name != "round":
            continue
        number = event.fields.get("round")
        if type(number) is not int or "digest" not in event.fields:
            raise DataError(f"{folder / EVENTS} has a round without a number or a digest")
        rounds[number] = event.fields
    return rounds


def _differences(
    ours: Mapping[str, Mapping[int, Round]], theirs: Mapping[str, Mapping[int, Round]]
) -> Iterator[Difference]:
    for peer in sorted(ours.keys() ^ theirs.keys()):
        side = "the first" if peer in ours else "the second"
        yield Difference(0, peer, f"took part in {side} run only")
    for peer in sorted(ours.keys() & theirs.keys()):
        for number in sorted(ours[peer].keys() | theirs[peer].keys()):
            what = _between(ours[peer].get(number), theirs[peer].get(number))
            if what:
                yield Difference(number, peer, what)
                break


def _between(ours: Round | None, theirs: Round | None) -> str:
    """In what one round differs; empty if in nothing."""
    if ours is None or theirs is None:
        return f"was played in {'the second' if ours is None else 'the first'} run only"
    for group in ("used", "stale", "missing", "refused", "cut", "skipped"):
        if ours.get(group) != theirs.get(group):
            return f"{group} is {ours.get(group)} and {theirs.get(group)}"
    if ours.get("digest") == theirs.get("digest"):
        return ""
    return _tensor_between(ours.get("tensors"), theirs.get("tensors"))


def _tensor_between(ours: object, theirs: object) -> str:
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return "the digests differ"
    if ours.keys() != theirs.keys():
        odd = sorted(map(str, ours.keys() ^ theirs.keys()))
        return f"tensors that only one of them has: {', '.join(odd[:3])}"
    differing = [str(name) for name in ours if ours[name] != theirs[name]]
    more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    return f"tensor {differing[0]}{more} differs" if differing else "the layouts differ"

"""`[[fault]]` tables of an experiment file, checked and typed. Reads nothing, carries nothing out.

A fault begins at a round or at an instant, and lasts until another, until something else ends it
(`heal`, `restart`, `coordinator-up`, `relay-up`), or to the end of the run. docs/faults.md tells
what each kind does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from protocol.ids import PeerId

__all__ = [
    "RULES",
    "Fault",
    "Kind",
    "KindRule",
    "Link",
    "Span",
    "late_names",
    "needs_launcher",
    "with_ends",
]


class Kind(StrEnum):
    PARTITION = "partition"
    HEAL = "heal"
    KILL = "kill"
    RESTART = "restart"
    LEAVE = "leave"
    JOIN = "join"
    FREEZE = "freeze"
    SLOW = "slow"
    DELAY = "delay"
    JITTER = "jitter"
    LOSS = "loss"
    BANDWIDTH = "bandwidth"
    CORRUPT = "corrupt"
    DISK_FULL = "disk-full"
    COORDINATOR_DOWN = "coordinator-down"
    COORDINATOR_UP = "coordinator-up"
    RELAY_DOWN = "relay-down"
    RELAY_UP = "relay-up"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when: in rounds, or in seconds since round 1 began. One of the two pairs is set.

    Attributes:
        at_round: the first round of it, >= 1; None when it is given in seconds.
        until_round: the first round after it; None while nothing in this table ends it.
        at_s: the instant at which it begins, in seconds; None when it is given in rounds.
        until_s: the instant at which it ends; None while nothing in this table ends it.
    """

    at_round: int | None = None
    until_round: int | None = None
    at_s: float | None = None
    until_s: float | None = None

    @property
    def in_rounds(self) -> bool:
        return self.at_round is not None

    @property
    def is_open(self) -> bool:
        """Nothing in the table ends it."""
        return self.until_round is None and self.until_s is None

    def has_round(self, round_no: int) -> bool:
        """Is it given in rounds, and in force in this one?"""
        return self.at_round is not None and (
            self.at_round <= round_no < (self.until_round or math.inf)
        )

    def has_instant(self, since_s: float) -> bool:
        """Is it given in seconds, and in force so many seconds after round 1 began?"""
        until_s = math.inf if self.until_s is None else self.until_s
        return self.at_s is not None and self.at_s <= since_s < until_s


@dataclass(frozen=True, slots=True)
class Link:
    """What `asker` and `answerer` say to each other; with `one_way`, what the first says only."""

    first: PeerId
    second: PeerId
    one_way: bool = False

    def carries(self, sender: str, receiver: str) -> bool:
        """Does a message from `sender` to `receiver` go this way?"""
        if (sender, receiver) == (self.first, self.second):
            return True
        return not self.one_way and (receiver, sender) == (self.first, self.second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One table. A field that its kind does not have keeps its default.

    Attributes:
        number: which table of the file it is, from 1.
        kind: what happens.
        span: when.
        groups: of a partition, each sorted; an exchange within one of them goes on.
        peers: whom it befalls, sorted; empty for all.
        links: ways that it befalls; empty for all of `peers`, or all.
        rate: share in (0, 1]: of rounds (random), of messages (loss, corrupt).
        rejoin: chance in (0, 1] that who is absent is back in the next round; None draws each round
            by itself.
        seconds: added to each message, >= 0: exactly (delay), at most and evenly drawn (jitter).
        factor: how many times slower, > 1.
        mbit: megabits a second, > 0.
    """

    number: int
    kind: Kind
    span: Span
    groups: tuple[tuple[PeerId, ...], ...] = ()
    peers: tuple[PeerId, ...] = ()
    links: tuple[Link, ...] = ()
    rate: float = 0.0
    rejoin: float | None = None
    seconds: float = 0.0
    factor: float = 1.0
    mbit: float = math.inf

    def befalls(self, name: str) -> bool:
        """Is this peer one of those that it befalls?"""
        return not self.peers or name in self.peers

    def carries(self, sender: str, receiver: str) -> bool:
        """Does it act on what `sender` says to `receiver`?

        Of a partition: is the message cut off? Whoever stands in no group is of one group with the
        others that stand in none.
        """
        if self.kind is Kind.PARTITION:
            return not _share_a_group(self.groups, sender, receiver)
        if self.links:
            return any(link.carries(sender, receiver) for link in self.links)
        return not self.peers or sender in self.peers or receiver in self.peers

    @property
    def names(self) -> tuple[PeerId, ...]:
        """Every name in it, sorted."""
        linked = (name for link in self.links for name in (link.first, link.second))
        grouped = (name for group in self.groups for name in group)
        return tuple(sorted({*self.peers, *linked, *grouped}))

    def __str__(self) -> str:
        """For a person: the kind, how much of it, and what it is about."""
        groups = " | ".join(" ".join(group) for group in self.groups)
        about = groups or " ".join(self.peers)
        if self.links:
            arrows = [(link, "->" if link.one_way else "-") for link in self.links]
            about = ", ".join(f"{link.first} {arrow} {link.second}" for link, arrow in arrows)
        amounts = (
            f"{100.0 * self.rate:g} %" if self.rate else "",
            f"back {100.0 * self.rejoin:g} %" if self.rejoin is not None else "",
            f"{self.seconds:g} s" if self.seconds else "",
            f"x {self.factor:g}" if self.factor > 1.0 else "",
            f"{self.mbit:g} Mbit/s" if math.isfinite(self.mbit) else "",
        )
        return " ".join(part for part in (str(self.kind), *amounts, about) if part)


def _share_a_group(groups: Sequence[Sequence[str]], one: str, other: str) -> bool:
    if any(one in group and other in group for group in groups):
        return True
    listed = {name for group in groups for name in group}
    return one not in listed and other not in listed


# -- what each kind may say ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KindRule:
    """What a table of one kind needs, may have besides, and what it does, in a line."""

    says: str
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    lasts: bool = True  # has an end, or may have one
    units: tuple[str, ...] = ("at_round", "at_s")
    default_at_round: int | None = None  # where no beginning is given


_WAYS = ("peers", "peer", "links", "one_way")
_WHOM = ("peers",)

RULES: Mapping[Kind, KindRule] = {
    Kind.PARTITION: KindRule("no exchange between the groups", ("groups",)),
    Kind.HEAL: KindRule("ends the partitions in force", lasts=False),
    Kind.KILL: KindRule("SIGKILL; with an end, started again then", _WHOM),
    Kind.RESTART: KindRule(
        "starts the peers again, after a SIGKILL if need be", _WHOM, lasts=False
    ),
    Kind.LEAVE: KindRule("the peers leave, with a goodbye", _WHOM, lasts=False),
    Kind.JOIN: KindRule("the peers take part from then on only", _WHOM, lasts=False),
    Kind.FREEZE: KindRule("SIGSTOP; SIGCONT at the end", _WHOM),
    Kind.SLOW: KindRule("training takes `factor` times as long", ("factor", "peers")),
    Kind.DELAY: KindRule("each message takes `seconds` longer", ("seconds",), _WAYS),
    Kind.JITTER: KindRule("each message takes 0 to `seconds` longer", ("seconds",), _WAYS),
    Kind.LOSS: KindRule("a share `rate` of the messages is lost", ("rate",), _WAYS),
    Kind.BANDWIDTH: KindRule("at most `mbit` megabits a second on each way", ("mbit",), _WAYS),
    Kind.CORRUPT: KindRule("a share `rate` of the frames arrives changed", ("rate",), _WAYS),
    Kind.DISK_FULL: KindRule("nothing can be written to the run directory", _WHOM),
    Kind.COORDINATOR_DOWN: KindRule("the coordinator is killed; with an end, started again then"),
    Kind.COORDINATOR_UP: KindRule("the coordinator is started again", lasts=False),
    Kind.RELAY_DOWN: KindRule("the relays are killed; with an end, started again then", may=_WHOM),
    Kind.RELAY_UP: KindRule("the relays are started again", may=_WHOM, lasts=False),
    Kind.RANDOM: KindRule(
        "each peer is absent from a round with chance `rate`",
        ("rate",),
        ("peers", "rejoin"),
        units=("at_round",),
        default_at_round=1,
    ),
}


# -- what ends what -----------------------------------------------------------------------------

_ENDED_BY: Mapping[Kind, Kind] = {
    Kind.PARTITION: Kind.HEAL,
    Kind.KILL: Kind.RESTART,
    Kind.COORDINATOR_DOWN: Kind.COORDINATOR_UP,
    Kind.RELAY_DOWN: Kind.RELAY_UP,
}


def late_names(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Who joins at an instant: not there when the run begins, and no founder; sorted."""
    joins = (f for f in faults if f.kind is Kind.JOIN and not f.span.in_rounds)
    return tuple(sorted({name for fault in joins for name in fault.peers}))


_OF_PROCESSES = frozenset(
    {
        Kind.KILL,
        Kind.RESTART,
        Kind.FREEZE,
        Kind.DISK_FULL,
        Kind.COORDINATOR_DOWN,
        Kind.COORDINATOR_UP,
        Kind.RELAY_DOWN,
        Kind.RELAY_UP,
    }
)


def needs_launcher(fault: Fault) -> bool:
    """Does it befall a process, so that whoever starts and ends processes must carry it out?

    Who joins or leaves at a round does so by itself; at an instant it is started, or asked to go.
    """
    by_the_clock = fault.kind in {Kind.JOIN, Kind.LEAVE} and not fault.span.in_rounds
    return by_the_clock or fault.kind in _OF_PROCESSES


def with_ends(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The same faults, each that another one ends with that end in its own span.

    Only what is given in the same unit, rounds or seconds, ends it here. A kill of several peers
    becomes one of each, since each may be started again at another moment.
    """
    faults = tuple(faults)
    found: list[Fault] = []
    for fault in faults:
        ender = _ENDED_BY.get(fault.kind)
        if ender is None:
            found.append(fault)
            continue
        parts = [replace(fault, peers=(name,)) for name in fault.peers] or [fault]
        enders = [other for other in faults if other.kind is ender]
        found += [_ended(part, enders) for part in parts]
    return tuple(found)


def _ended(fault: Fault, enders: Sequence[Fault]) -> Fault:
    span = fault.span
    fitting = [
        o.span for o in enders if not o.peers or not fault.peers or fault.peers[0] in o.peers
    ]
    if span.at_round is not None:
        rounds = [s.at_round for s in fitting if s.at_round and s.at_round > span.at_round]
        end = min([*rounds, *([span.until_round] if span.until_round else [])], default=None)
        return replace(fault, span=replace(span, until_round=end))
    start_s = span.at_s or 0.0
    instants = [s.at_s for s in fitting if s.at_s is not None and s.at_s > start_s]
    end_s = min([*instants, *([span.until_s] if span.until_s is not None else [])], default=None)
    return replace(fault, span=replace(span, until_s=end_s))

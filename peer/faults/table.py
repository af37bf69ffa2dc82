"""`[[fault]]` tables of an experiment file, checked and typed. Reads nothing, carries nothing out.

A fault begins at a round or at an instant, and lasts until another, until something else ends it
(`heal`, `restart`, `coordinator-up`, `relay-up`), or to the end of the run. docs/faults.md tells
what each kind does.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from protocol.errors import ConfigError
from protocol.ids import PeerId, peer_id

__all__ = [
    "MAX_FAULTS",
    "RULES",
    "Fault",
    "Kind",
    "KindRule",
    "Link",
    "Span",
    "check_names",
    "late_names",
    "read_faults",
    "with_ends",
]

MAX_FAULTS = 1000  # tables of one file
MAX_NAMES = 10_000  # in one table
MAX_ROUND = 1_000_000
MAX_SECONDS = 31_536_000.0  # a year


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

_ENDS = ("until_round", "for_rounds", "until_s", "for_s")


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What a key's value may be."""

    said: str
    fits: Callable[[Any], bool]


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _round(low: int) -> _Allowed:
    return _Allowed(
        f"a whole number from {low} to {MAX_ROUND}",
        lambda v: type(v) is int and low <= v <= MAX_ROUND,
    )


def _seconds(low: float, said: str) -> _Allowed:
    return _Allowed(said, lambda v: _is_number(v, low, MAX_SECONDS))


_share = _Allowed("a number in (0, 1]", lambda v: _is_number(v, 0.0, 1.0) and v > 0)
_positive_s = _Allowed(
    "seconds, more than 0", lambda v: _is_number(v, 0.0, MAX_SECONDS) and v > 0.0
)
_VALUES: Mapping[str, _Allowed] = {
    "at_round": _round(1),
    "until_round": _round(2),
    "for_rounds": _round(1),
    "at_s": _seconds(0.0, "seconds since round 1 began, 0 or more"),
    "until_s": _positive_s,
    "for_s": _positive_s,
    "rate": _share,
    "rejoin": _share,
    "seconds": _seconds(0.0, "seconds, 0 or more"),
    "factor": _Allowed("a number above 1", lambda v: _is_number(v, 1.0, 1e6) and v > 1.0),
    "mbit": _Allowed("megabits a second, more than 0", lambda v: _is_number(v, 0.0, 1e9) and v > 0),
    "one_way": _Allowed("true or false", lambda v: isinstance(v, bool)),
}


def read_faults(raw: object, *, names: Iterable[str] | None = None) -> tuple[Fault, ...]:
    """Check the `[[fault]]` tables of a file, in their order.

    Args:
        raw: the value of `fault` in the parsed file.
        names: every peer and relay that there will be; None leaves names unchecked.

    Raises:
        ConfigError: a table, key or value that is not allowed; the text names the table, the key,
            what was seen and what may stand there.
    """
    if not isinstance(raw, list) or len(raw) > MAX_FAULTS:
        raise ConfigError(
            f"fault must be at most {MAX_FAULTS} tables",
            hint='[[fault]], kind = "partition", at_round = 2, groups = [["a"], ["b"]]',
        )
    faults = tuple(_Reader(number, table).fault() for number, table in enumerate(raw, 1))
    _check_together(faults)
    if names is not None:
        check_names(faults, names)
    return faults


def check_names(faults: Iterable[Fault], names: Iterable[str]) -> None:
    """Refuse a fault that befalls somebody who does not exist.

    Raises:
        ConfigError: it names who it is, and whom there is.
    """
    known = sorted(set(names))
    for fault in faults:
        for name in fault.names:
            if name not in known:
                raise ConfigError(
                    f"[[fault]] {fault.number} ({fault.kind}) names {name!r}, which is no peer of "
                    "this run",
                    hint=_suggest(name, known),
                )


@dataclass(slots=True)
class _Reader:
    """One table on its way to a `Fault`."""

    number: int
    raw: object
    _where: str = field(init=False)

    def __post_init__(self) -> None:
        self._where = f"[[fault]] {self.number}"

    def fault(self) -> Fault:
        table = self._table()
        kind = self._kind(table)
        self._where = f"[[fault]] {self.number} ({kind})"
        rule = RULES[kind]
        self._keys(table, rule)
        self._values(table)
        peers = tuple(sorted({*self._names(table, "peers"), *self._name(table, "peer")}))
        return Fault(
            number=self.number,
            kind=kind,
            span=self._span(table, rule),
            groups=self._groups(table),
            peers=peers,
            links=self._links(table),
            rate=float(table.get("rate", 0.0)),
            rejoin=float(table["rejoin"]) if "rejoin" in table else None,
            seconds=float(table.get("seconds", 0.0)),
            factor=float(table.get("factor", 1.0)),
            mbit=float(table.get("mbit", math.inf)),
        )

    def _error(self, text: str, *, hint: str = "") -> ConfigError:
        return ConfigError(f"{self._where} {text}", hint=hint)

    def _table(self) -> Mapping[str, Any]:
        if not isinstance(self.raw, dict):
            raise self._error(f"must be a table, got {self.raw!r:.60}")
        return self.raw

    def _kind(self, table: Mapping[str, Any]) -> Kind:
        kinds = [kind.value for kind in Kind]
        seen = table.get("kind")
        if seen is None:
            raise self._error("has no kind", hint=f"there are: {', '.join(kinds)}")
        if not isinstance(seen, str) or seen not in kinds:
            raise self._error(f"has kind {seen!r:.60}", hint=_suggest(str(seen), kinds))
        return Kind(seen)

    def _keys(self, table: Mapping[str, Any], rule: KindRule) -> None:
        """Everything that is needed is there, and nothing else."""
        own = (*rule.needs, *rule.may, *(("peer",) if "peers" in rule.needs + rule.may else ()))
        ends = [end for end in _ENDS if rule.lasts and _unit(end) in rule.units]
        known = list(dict.fromkeys(("kind", *rule.units, *ends, *own)))
        for key in table:
            if key not in known:
                raise self._error(f"has no key {key!r}", hint=_suggest(key, known))
        for key in rule.needs:
            if key not in table and not (key == "peers" and "peer" in table):
                raise self._error(f"needs {key}", hint=f"it {rule.says}" if rule.says else "")
        if "peer" in table and "peers" in table:
            raise self._error("has peer and peers: one of the two is enough")
        if "links" in table and ("peer" in table or "peers" in table):
            raise self._error("has peers and links: one of the two is enough")
        if "one_way" in table and "links" not in table:
            raise self._error("has one_way, which needs links")

    def _values(self, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            allowed = _VALUES.get(key)
            if allowed is not None and not allowed.fits(value):
                raise self._error(f"has {key} = {value!r:.60}: it must be {allowed.said}")

    def _span(self, table: Mapping[str, Any], rule: KindRule) -> Span:
        starts = [key for key in ("at_round", "at_s") if key in table]
        if not starts and rule.default_at_round is not None:
            table, starts = {"at_round": rule.default_at_round, **table}, ["at_round"]
        if len(starts) != 1:
            seen = " and ".join(starts) or "no beginning"
            raise self._error(f"has {seen}", hint=f"it needs one of {' or '.join(rule.units)}")
        ends = [key for key in _ENDS if key in table]
        if len(ends) > 1:
            raise self._error(f"has {' and '.join(ends)}: one end is enough")
        for end in ends:
            if _unit(end) != starts[0]:
                raise self._error(f"begins with {starts[0]} and ends with {end}: take one unit")
        start = table[starts[0]]
        end_at = None
        if ends:
            end_at = table[ends[0]] + (start if ends[0].startswith("for") else 0)
            if end_at <= start:
                raise self._error(
                    f"has {ends[0]} = {table[ends[0]]}: it must end after {starts[0]} = {start}"
                )
        if starts[0] == "at_round":
            return Span(at_round=start, until_round=end_at)
        return Span(at_s=float(start), until_s=float(end_at) if end_at is not None else None)

    def _name(self, table: Mapping[str, Any], key: str) -> tuple[PeerId, ...]:
        if key not in table:
            return ()
        if not isinstance(table[key], str):
            raise self._error(f"has {key} = {table[key]!r:.60}: it must be a name")
        return (self._checked(table[key]),)

    def _names(self, table: Mapping[str, Any], key: str) -> tuple[PeerId, ...]:
        if key not in table:
            return ()
        return self._list_of_names(table[key], key)

    def _list_of_names(self, value: object, key: str) -> tuple[PeerId, ...]:
        fits = isinstance(value, list) and 0 < len(value) <= MAX_NAMES
        if not fits or not all(isinstance(name, str) for name in value):  # type: ignore[attr-defined]
            raise self._error(
                f"has {key} = {value!r:.60}: it must be a list of names, at least one"
            )
        return tuple(sorted({self._checked(name) for name in value}))  # type: ignore[attr-defined]

    def _checked(self, name: str) -> PeerId:
        try:
            return peer_id(name)
        except ConfigError as error:
            raise self._error(f"names a peer that cannot be: {error.args[0]}") from None

    def _groups(self, table: Mapping[str, Any]) -> tuple[tuple[PeerId, ...], ...]:
        if "groups" not in table:
            return ()
        groups = table["groups"]
        if not isinstance(groups, list) or not 0 < len(groups) <= MAX_NAMES:
            raise self._error(
                f"has groups = {groups!r:.60}: it must be a list of lists of names",
                hint='groups = [["a", "b"], ["c"]]; who stands in none is with the others of those',
            )
        return tuple(self._list_of_names(group, "a group") for group in groups)

    def _links(self, table: Mapping[str, Any]) -> tuple[Link, ...]:
        if "links" not in table:
            return ()
        links, one_way = table["links"], table.get("one_way", False)
        said = 'links = [["a", "b"], ["a", "c"]]'
        if not isinstance(links, list) or not 0 < len(links) <= MAX_NAMES:
            raise self._error(f"has links = {links!r:.60}: it must be a list of pairs", hint=said)
        found = []
        for pair in links:
            named = isinstance(pair, list) and all(isinstance(name, str) for name in pair)
            if not named or len(pair) != 2 or pair[0] == pair[1]:
                raise self._error(f"has the link {pair!r:.60}: it must be two names", hint=said)
            found.append(Link(self._checked(pair[0]), self._checked(pair[1]), one_way))
        return tuple(found)


def _unit(end: str) -> str:
    return "at_round" if end in ("until_round", "for_rounds") else "at_s"


def _check_together(faults: Sequence[Fault]) -> None:
    """A peer joins once and leaves once, and leaves after it has joined."""
    lives: dict[tuple[PeerId, Kind], Fault] = {}
    for fault in faults:
        if fault.kind not in (Kind.JOIN, Kind.LEAVE):
            continue
        for name in fault.peers:
            if (other := lives.setdefault((name, fault.kind), fault)) is not fault:
                raise ConfigError(
                    f"[[fault]] {fault.number} ({fault.kind}) names {name}, which [[fault]] "
                    f"{other.number} has already",
                    hint="who is away for a while is killed until a round, or absent at random",
                )
    for (name, kind), fault in lives.items():
        joined = lives.get((name, Kind.JOIN))
        if kind is not Kind.LEAVE or joined is None:
            continue
        if joined.span.in_rounds != fault.span.in_rounds or _start(joined) >= _start(fault):
            raise ConfigError(
                f"[[fault]] {fault.number} ({fault.kind}) lets {name} leave before it joins by "
                f"[[fault]] {joined.number}",
                hint="a peer may join and then leave, both in rounds or both in seconds",
            )


def _start(fault: Fault) -> float:
    span = fault.span
    return float(span.at_round if span.at_round is not None else span.at_s or 0.0)


def _suggest(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=3)
    said = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{said}there are: {', '.join(known)}"


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

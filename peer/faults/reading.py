"""The `[[fault]]` tables of a file, checked and typed. Reads no file, carries nothing out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peer.faults.table import RULES, Fault, Kind, KindRule, Link, Span
from peer.options.fields import LONGEST_S
from peer.options.tables import FLAG, Allowed, keyed, whole
from protocol.errors import ConfigError
from protocol.ids import PeerId, peer_id
from protocol.suggest import of_all

__all__ = ["MAX_FAULTS", "check_names", "read_faults"]

MAX_FAULTS = 1000  # tables of one file
MAX_NAMES = 10_000  # in one table
MAX_ROUND = 1_000_000

_ENDS = ("until_round", "for_rounds", "until_s", "for_s")


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _seconds(low: float, said: str) -> Allowed:
    return Allowed(said, lambda v: _is_number(v, low, LONGEST_S))


_share = Allowed("a number in (0, 1]", lambda v: _is_number(v, 0.0, 1.0) and v > 0)
_positive_s = Allowed("seconds, more than 0", lambda v: _is_number(v, 0.0, LONGEST_S) and v > 0.0)
_VALUES: Mapping[str, Allowed] = {
    "at_round": whole(1, MAX_ROUND),
    "until_round": whole(2, MAX_ROUND),
    "for_rounds": whole(1, MAX_ROUND),
    "at_s": _seconds(0.0, "seconds since round 1 began, 0 or more"),
    "until_s": _positive_s,
    "for_s": _positive_s,
    "rate": _share,
    "rejoin": _share,
    "seconds": _seconds(0.0, "seconds, 0 or more"),
    "factor": Allowed("a number above 1", lambda v: _is_number(v, 1.0, 1e6) and v > 1.0),
    "mbit": Allowed("megabits a second, 0.000001 or more", lambda v: _is_number(v, 1e-6, 1e9)),
    "one_way": FLAG,
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
                    hint=of_all(name, known),
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
        table = keyed(self.raw, self._where, None)
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

    def _kind(self, table: Mapping[str, Any]) -> Kind:
        kinds = [kind.value for kind in Kind]
        seen = table.get("kind")
        if seen is None:
            raise self._error("has no kind", hint=f"there are: {', '.join(kinds)}")
        if not isinstance(seen, str) or seen not in kinds:
            raise self._error(f"has kind {seen!r:.60}", hint=of_all(str(seen), kinds))
        return Kind(seen)

    def _keys(self, table: Mapping[str, Any], rule: KindRule) -> None:
        """Everything that is needed is there, and nothing else."""
        own = (*rule.needs, *rule.may, *(("peer",) if "peers" in rule.needs + rule.may else ()))
        ends = [end for end in _ENDS if rule.lasts and _unit(end) in rule.units]
        known = list(dict.fromkeys(("kind", *rule.units, *ends, *own)))
        keyed(table, self._where, known)
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

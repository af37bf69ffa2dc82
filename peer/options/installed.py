"""Methods that a person's own packages bring: entry points beside those of Kinfolk itself.

A package names a torch-free `Entry` for each method under the group of its slot, `kinfolk.mixers`,
`kinfolk.solvers` or `kinfolk.aggregators`; the entry names the algorithm as text, which only a
trainer imports. What cannot be used is refused by name, with the package at fault, and hinders no
run that does not ask for it.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from peer.options.entry import Entry, Need
from peer.options.fields import Rule, rules
from protocol.errors import ConfigError

__all__ = ["GROUPS", "Registry"]

GROUPS: Mapping[str, str] = {
    "mixer": "kinfolk.mixers",
    "solver": "kinfolk.solvers",
    "aggregator": "kinfolk.aggregators",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_+-]{0,63}\Z")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


class Registry(Mapping[str, Entry]):
    """The methods of one slot by name: the own ones in their order, then installed ones by name.

    Packages are looked for when the first method is asked for, once in a process.
    """

    def __init__(self, slot: str, own: Mapping[str, Entry]) -> None:
        self._slot, self._own = slot, own

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def faults(self) -> Mapping[str, str]:
        """Names that cannot be used though a package brings them, and why."""
        return self._found[1]

    def check(self, name: str) -> None:
        """Refuse a name that a package claims in vain.

        Raises:
            ConfigError: tells the package, and what is wrong with it.
        """
        if fault := self.faults.get(name):
            raise ConfigError(
                f"{self._slot} {name!r} cannot be used: {fault}", hint="mend or remove that package"
            )

    @cached_property
    def _entries(self) -> Mapping[str, Entry]:
        return {**self._own, **self._found[0]}

    @cached_property
    def _found(self) -> tuple[Mapping[str, Entry], Mapping[str, str]]:
        entries: dict[str, Entry] = {}
        faults: dict[str, str] = {}
        by_name: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=GROUPS[self._slot]):
            by_name.setdefault(point.name, []).append(point)
        for name, points in sorted(by_name.items()):
            try:
                entries[name] = self._loaded(name, points)
            except ConfigError as error:
                faults[name] = str(error)
        return MappingProxyType(entries), MappingProxyType(faults)

    def _loaded(self, name: str, points: list[EntryPoint]) -> Entry:
        packages = sorted({_package(point) for point in points})
        told = " and ".join(packages)
        if name in self._own:
            raise ConfigError(f"{told} brings one of that name, which is Kinfolk's own")
        if len(points) > 1:
            raise ConfigError(f"{told} bring one each: it is not clear which is meant")
        if not _NAME.match(name):
            raise ConfigError(f"{told}: a name is lower-case letters, digits, '-', '_' and '+'")
        try:
            entry = _imported(points[0])
        except ConfigError as error:
            raise ConfigError(f"{told}: {error}") from None
        gives = entry.gives | ({Need.AGGREGATE} if self._slot == "aggregator" else frozenset())
        return replace(entry, gives=gives, package=told)


def _imported(point: EntryPoint) -> Entry:
    had_torch = "torch" in sys.modules
    entry: object = None
    fault = ""
    try:
        entry = point.load()
    except Exception as error:  # noqa: BLE001 - whatever a stranger's module does when imported
        fault = f"importing {point.value} failed: {type(error).__name__}: {error}"
    if not had_torch and "torch" in sys.modules:
        fault = (
            f"{point.value} imports torch: let the entry name its algorithm as text, "
            'factory = "package.module:Class", in a module of its own'
        )
    if fault:
        raise ConfigError(fault)
    if not isinstance(entry, Entry):
        raise ConfigError(
            f"{point.value} is a {type(entry).__name__}, must be a peer.options.entry.Entry"
        )
    _check(entry, point.value)
    return entry


def _check(entry: Entry, where: str) -> None:
    if not _FACTORY.match(entry.factory):
        raise ConfigError(
            f"{where} has factory = {entry.factory!r}, must be like 'package.module:Class'"
        )
    try:
        declared = rules(entry.options)
        entry.options()
    except Exception as error:  # noqa: BLE001 - a stranger's class, which may fail in any way
        raise ConfigError(
            f"the options of {where} are no dataclass of peer.options.fields with defaults: {error}"
        ) from None
    if Need.COMMON_START in entry.gives:
        raise ConfigError(
            f"{where} gives {Need.COMMON_START.value}, which only mixers relay and replicated do: "
            "write an aggregator, and have it run by one of them"
        )
    for option, value in entry.when:
        if option not in declared:
            raise ConfigError(f"{where} needs more when {option} = {value}, which is no option")
    _check_only(declared, where)


def _check_only(declared: Mapping[str, Rule], where: str) -> None:
    """Each option that is read only with another one names one of its table, and fits its kind."""
    for name, rule in declared.items():
        if rule.only is None:
            continue
        told = f"{where} reads {name} only with {rule.only.told()}"
        if rule.only.option not in declared:
            raise ConfigError(f"{told}, which is no option")
        other = declared[rule.only.option]
        try:
            rule.only.holds(other.default)
        except ValueError as error:
            raise ConfigError(f"{told}: {error}") from None
        if isinstance(other.default, str | bool):
            for word in set(rule.only.allowed.split(" | ")) - set(other.allowed.split(" | ")):
                raise ConfigError(f"{told}: {word!r} is none of {other.allowed}")


def _package(point: EntryPoint) -> str:
    if point.dist is None:  # pragma: no cover - entry points of the environment always have one
        return point.value
    return f"package {point.dist.name} {point.dist.version}"

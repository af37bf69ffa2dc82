"""`peer methods`: what can be put where `--method`, mixer, solver and aggregator are asked for."""

from collections.abc import Iterator, Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from peer.options.entry import Entry
from peer.options.fields import Rule, Value, rules, shown
from peer.options.recipe import PRESETS, SLOTS, defaults, givers_of, option_rules
from peer.settings import DEFAULT_PRESET
from protocol.errors import ConfigError
from protocol.suggest import did_you_mean

__all__ = ["methods"]

# What a preset is, where no part of it that has its name says so.
_ABOUT: Mapping[str, str] = {
    "kinfolk": "weigh neighbours by influence, train under constraints; a relay is one more",
    "gossip": "decentralised averaging over the neighbourhood",
    "local+fedconst": "every peer for itself, under constraints",
    "fedconst+craft": "constraints that hold for the common model too",
    "ditto+craft": "a personal model that is pulled to CRAFT's",
    "scaffold": "drift of every peer cancelled by a pair of control variates",
    "feddyn": "a regulariser for every peer that follows its drift",
}
_HEADER = ("option", "default", "allowed", "what it is for")


@click.command()
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List every preset, mixer, solver and aggregator; with NAME, all its options.

    A preset goes to `peer start --method`; the rest are options of a run, such as
    `--option solver=fedprox --option solver.mu=0.1`.
    """
    if name is None:
        _list()
    else:
        _show(name)


def _list() -> None:
    groups = {"preset": [(name, f"{_parts(name)}: {_about(name)}") for name in PRESETS]}
    for slot, entries in SLOTS.items():
        groups[slot] = [(name, _told(entry)) for name, entry in entries.items()]
    width = max(len(name) for rows in groups.values() for name, _ in rows)
    for kind, rows in groups.items():
        padded = [(name.ljust(width), text) for name, text in rows]
        if Console().is_terminal:
            _print((kind, "what it is"), padded)
            click.echo()
        else:
            _print(("kind", "name", "what it is"), [(kind.ljust(10), *row) for row in padded])
    for slot, entries in SLOTS.items():
        for name, fault in entries.faults.items():
            click.echo(f"Warning: {slot} {name!r} cannot be used: {fault}", err=True)


def _told(entry: Entry) -> str:
    return f"{entry.summary} ({entry.package})" if entry.package else entry.summary


def _show(name: str) -> None:
    for entries in SLOTS.values():
        entries.check(name)
    found = {slot: entries[name] for slot, entries in SLOTS.items() if name in entries}
    preset = PRESETS.get(name)
    if preset is None and not found:
        known = sorted({*PRESETS, *(known for entries in SLOTS.values() for known in entries)})
        hint = did_you_mean(name, known) or "`peer methods` lists them all"
        raise ConfigError(f"there is no method {name!r}", hint=hint)
    if preset is not None:
        click.echo(f"preset {name}: {_about(name)}")
        click.echo(f"  {', '.join(f'{key} = {shown(value)}' for key, value in preset.items())}")
        flat = defaults(name)
        declared = option_rules({slot: str(flat[slot]) for slot in SLOTS})
        _print(_HEADER, [_row(key, rule, flat[key]) for key, rule in declared.items()])
    for slot, entry in found.items():
        apart = preset is None or preset[slot] != name  # else its options stand above
        needs = list(_needs(entry))
        if apart or needs:
            click.echo(f"{slot} {name}: {_told(entry)}")
        for line in needs:
            click.echo(f"  {line}")
        if apart:
            declared = {f"{slot}.{option}": rule for option, rule in rules(entry.options).items()}
            _print(_HEADER, [_row(key, rule, rule.default) for key, rule in declared.items()])


def _about(preset: str) -> str:
    named = [SLOTS[slot][preset].summary for slot in SLOTS if PRESETS[preset][slot] == preset]
    default = " (the default)" if preset == DEFAULT_PRESET else ""
    return (_ABOUT[preset] if preset in _ABOUT else named[0]) + default


def _parts(preset: str) -> str:
    parts = (str(PRESETS[preset][slot]) for slot in SLOTS)
    return " + ".join(part for part in parts if part != "none")


def _needs(entry: Entry) -> Iterator[str]:
    ways = {"": entry.needs} | {f"with {k} = {v}, ": needs for (k, v), needs in entry.when.items()}
    for way, needs in ways.items():
        for need in sorted(needs, key=lambda need: need.name):
            givers = givers_of(need)
            yield f"{way}needs {need.value}" + (f" ({givers})" if givers else "")


def _row(key: str, rule: Rule, default: Value) -> tuple[str, str, str, str]:
    where = f"; only with {rule.only.told(key.partition('.')[0])}" if rule.only else ""
    return key, shown(default), rule.allowed, rule.help + where


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw a table on a terminal; elsewhere a line for each row, for grep and awk."""
    if not rows:
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo("  ".join(cells).rstrip())
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in header:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)

"""What a person asked of a coordinator, and the book that it opens: a new run or one resumed."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from coordinator.book import Book
from protocol.errors import ConfigError
from protocol.ids import RunId, peer_id
from protocol.manifest import Manifest, conflicts, differences, parse_assignment
from protocol.tomltext import read_toml
from protocol.transport.addresses import HostPort, parse_host_port
from protocol.wire.messages import MAX_MEMBERS

__all__ = ["DEFAULT_BIND", "Config", "default_run_name", "new_book", "read_config", "resume"]

_T = TypeVar("_T", int, str)

DEFAULT_PORT = 7733
DEFAULT_BIND = HostPort("0.0.0.0", DEFAULT_PORT)  # noqa: S104 - other hosts must reach it
DEFAULT_FOUNDERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """None stands for: not typed."""

    bind: HostPort | None = None
    advertise: str | None = None  # HOST
    founders: int | None = None  # in [1, MAX_MEMBERS]
    relays: int | None = None  # in [0, MAX_MEMBERS]
    run_name: str | None = None
    options: Manifest = field(default_factory=Manifest)  # pinned lines of the manifest
    lease_s: float = 15.0  # in [1, 3600]

    def __post_init__(self) -> None:
        if self.founders is not None and not 1 <= self.founders <= MAX_MEMBERS:
            raise ConfigError(f"founders must be in [1, {MAX_MEMBERS}], got {self.founders}")
        if self.relays is not None and not 0 <= self.relays <= MAX_MEMBERS:
            raise ConfigError(f"relays must be in [0, {MAX_MEMBERS}], got {self.relays}")
        if not 1.0 <= self.lease_s <= 3600.0:
            raise ConfigError(f"the lease must be in [1, 3600] s, got {self.lease_s:g}")
        if self.run_name is not None:
            peer_id(self.run_name)


def read_config(
    *,
    bind: str | None,
    advertise: str | None,
    founders: int | None,
    relays: int | None,
    run_name: str | None,
    experiment: Path | None,
    assignments: Sequence[str],
    lease_s: float,
) -> Config:
    """Put the options of the command line over those of the experiment file.

    Raises:
        ConfigError: one of them is out of bounds, or the file cannot be read.
        AddressError: `bind` or `advertise` is no address.
    """
    tables = read_toml(experiment)[1] if experiment else {}
    run = tables.get("run", {})
    if not isinstance(run, Mapping):
        raise ConfigError(f"{experiment}: run must be a table, [run]")
    typed = Manifest(dict(parse_assignment(text) for text in assignments))
    return Config(
        bind=parse_host_port(bind, default_port=DEFAULT_PORT) if bind else None,
        advertise=parse_host_port(advertise, default_port=0).host if advertise else None,
        founders=_typed(run, "founders", int) if founders is None else founders,
        relays=relays,
        run_name=_typed(run, "name", str) if run_name is None else run_name,
        options=typed.over(Manifest.from_tables(tables)),
        lease_s=lease_s,
    )


def default_run_name(now_s: float) -> str:
    """Name a run after the second in which it was started, UTC."""
    return datetime.fromtimestamp(now_s, UTC).strftime("run-%Y%m%d-%H%M%S")


def new_book(config: Config, *, run_name: str) -> Book:
    return Book(
        run=RunId(os.urandom(16)),
        run_name=run_name,
        token=os.urandom(16),
        founders=config.founders or DEFAULT_FOUNDERS,
        relays=config.relays or 0,
        options=config.options,
    )


def resume(book: Book, config: Config) -> None:
    """Check what was typed against the run as it stands, and pin what is still open.

    Raises:
        ConfigError: an option differs; the text names the line.
    """
    odd = []
    if config.founders not in {None, book.founders}:
        odd.append(f"founders: you asked for {config.founders}, the run has {book.founders}")
    if config.relays not in {None, book.relays}:
        odd.append(f"relays: you asked for {config.relays}, the run has {book.relays}")
    compare = differences if book.settled else conflicts
    odd.extend(compare(config.options, book.options))
    if odd:
        raise ConfigError(
            f"the run {book.run_name} goes on as it was started: {'; '.join(odd)}",
            hint="leave these options away, or start a new run with another --run",
        )
    if not book.settled:
        book.options = book.options.over(config.options)


def _typed(run: Mapping[str, object], name: str, kind: type[_T]) -> _T | None:
    value = run.get(name)
    if value is None or type(value) is kind:
        return value
    raise ConfigError(f"run.{name} = {value!r} must be a {kind.__name__}")

"""What a person asks of `peer data make`, from the command line or a [data] table. No arrays."""

import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from peer.data.fields import Kind, unknown_key
from peer.data.partition import parse_partition
from protocol.errors import ConfigError
from protocol.ids import peer_id

__all__ = ["DIGIT_SOURCES", "MakeOptions"]

DIGIT_SOURCES = ("mnist", "mnistm", "optdigits", "synthdigits")
EVERYTHING = "digits"  # all of DIGIT_SOURCES

# option -> (smallest, largest) whole number
_BOUNDS: Mapping[str, tuple[int, int]] = {
    "peers": (1, 10_000),
    "seed": (0, 2**63 - 1),
    "samples_per_class": (1, 1_000_000),
    "val_per_class": (0, 1_000_000),
    "test_per_class": (0, 1_000_000),
    "min_samples": (1, 1_000_000),
    "camps": (1, 10_000),
    "size": (4, 512),
    "channels": (1, 3),
    "synth_per_class": (1, 10_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeOptions:
    """Everything that decides what the shards of a folder hold.

    Raises:
        ConfigError: at construction; names the option, its value and what is allowed.
    """

    sources: tuple[str, ...] = ()  # of DIGIT_SOURCES, or "digits" for all four
    domains: Mapping[str, Path] = field(default_factory=dict)  # name -> a person's .npz
    usps: Path | None = None  # short for domains = {usps = FILE}
    datasets: tuple[str, ...] = ()  # torchvision's
    data_root: Path | None = None  # folder of `datasets`
    download: bool = False  # may fetch `datasets` into `data_root`
    peers: int = 8
    partition: str = "domain"
    seed: int = 0
    samples_per_class: int | None = None  # for training, per class and peer; None: all that is left
    val_per_class: int = 10  # per class and peer, fewer where samples are scarce
    test_per_class: int = 30  # likewise
    min_samples: int = 10  # training samples of each peer
    camps: int = 1
    size: int | None = None  # pixels of both sides; None: 28 for digits, else as they are
    channels: int | None = None  # 1 or 3; None: 3 for digits, else as they are
    synth_per_class: int = 500  # images that SynthDigits renders

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} is {value}, must be from {low} to {high}")
        if self.channels == 2:
            raise ConfigError("channels is 2, must be 1 or 3")
        parse_partition(self.partition)
        known = (EVERYTHING, *DIGIT_SOURCES)
        for source in self.sources:
            if source not in known:
                raise unknown_key(source, known, "source of digits", ConfigError)
        names = [*self.digit_sources, *self.files, *(name.lower() for name in self.datasets)]
        if not names:
            raise ConfigError(
                "nothing to make shards of", hint="say digits, or give --dataset or --domain"
            )
        for name in names:
            peer_id(name)
            if names.count(name) > 1:
                raise ConfigError(f"domain {name!r} is asked for {names.count(name)} times")
        self._check_unused()
        if self.datasets and self.data_root is None:
            raise ConfigError(
                f"data set {self.datasets[0]} needs a folder", hint="give --data-root"
            )

    def _check_unused(self) -> None:
        """Refuse what only sources that were not asked for would read."""
        for name, asked in (("data_root", self.data_root is not None), ("download", self.download)):
            if asked and not self.datasets:
                raise ConfigError(
                    f"{name} is given, and no data set of torchvision's is asked for",
                    hint=f"name one in datasets (--dataset), or leave {name} out",
                )
        default = type(self).__dataclass_fields__["synth_per_class"].default
        if self.synth_per_class != default and "synthdigits" not in self.digit_sources:
            raise ConfigError(
                f"synth_per_class is {self.synth_per_class}, and synthdigits is not asked for",
                hint="name synthdigits among the sources, or leave synth_per_class out",
            )

    @property
    def digit_sources(self) -> tuple[str, ...]:
        """The sources of digits, "digits" spelled out, in the order of DIGIT_SOURCES."""
        return tuple(s for s in DIGIT_SOURCES if {s, EVERYTHING} & set(self.sources))

    @property
    def files(self) -> Mapping[str, Path]:
        """Domains that come from files."""
        return {**self.domains, **({"usps": self.usps} if self.usps else {})}

    @classmethod
    def from_mapping(cls, table: Mapping[str, object], *, base: Path = Path()) -> Self:
        """Read a [data] table; paths in it are relative to `base`, the folder of its file.

        Raises:
            ConfigError: an unknown key (named, with the allowed ones), a wrong type, or a value out
                of bounds.
        """
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in _KINDS:
                raise unknown_key(key, tuple(_KINDS), "key of [data]", ConfigError)
            given = [value] if _KINDS[key].outer is list and isinstance(value, str) else value
            if not _KINDS[key].fits(given):
                raise ConfigError(f"[data] {key} is {value!r:.60}, must be a {_KINDS[key]}")
            values[key] = tuple(given) if isinstance(given, list) else given
        for key in {"usps", "data_root"} & values.keys():
            values[key] = base / values[key]
        if files := values.get("domains"):
            for name, file in files.items():
                if not isinstance(file, str):
                    raise ConfigError(f"[data] domains: {name} is {file!r:.60}, must be a path")
            values["domains"] = {name: base / file for name, file in files.items()}
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Write as a table of strings, numbers and lists; what is None is left out."""
        table: dict[str, Any] = {}
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, Path):
                value = str(value)
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                value = {name: str(path) for name, path in value.items()}
            if value is not None:
                table[option.name] = value
        return table


_OUTER: Mapping[object, Kind] = {
    tuple[str, ...]: Kind(list, str),
    Mapping[str, Path]: Kind(dict),
    Path | None: Kind(str),
    int | None: Kind(int),
    int: Kind(int),
    str: Kind(str),
    bool: Kind(bool),
}
_KINDS = types.MappingProxyType(
    {option.name: _OUTER[option.type] for option in fields(MakeOptions)}
)
